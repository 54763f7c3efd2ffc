"""The hypotheses about each kind of wrong value, in the order in which they are tried: the likeliest first.

A hypothesis is a small function from evidence to causes. Those about an array or a number also give the value that each cause
would lead to, on every rank.

Two kinds are not in these tables. A whole training run is compared with emulated runs by other rules, which
training/whole_runs.py, resumes.py and some_steps.py list. Where one function decides on the cause, laws ask it directly: see
samplers.py, randomness.py, traffic.py, lifecycle.py, process_state.py, errors.py, failed_ranks.py and programs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..causes.cause import Given
from . import losses, norms
from .arrays import (
    alternatives,
    factors,
    few_bits,
    lost_precision,
    low_rank,
    offset,
    patterns,
    special_values,
    tiny_updates,
    wrong_elements,
)
from .arrays.evidence import WrongArray
from .collectives import blocks, messages, moved_data, other_operations, reductions
from .gradients import micro_batches, parameters, weights
from .gradients import ranks as ranks_of_gradients
from .metrics import counts, means
from .scores import formulas, padding, perturbations, ranks, rows, special_scores, terms
from .updates import updates

Questions = tuple[Callable[[WrongArray], Iterator[Given]], ...]

OF_MOVED_DATA: Questions = (
    alternatives.every_bit,
    patterns.permuted,
    lost_precision.sent_as,
)
"""Of an array that was only moved, as by a broadcast: tried before all others."""

OF_MOVED_LAST_BITS: Questions = (patterns.changed_on_the_way,)
"""Of such an array that is right but for last bits."""

OF_LAST_BITS: Questions = (
    alternatives.last_bits,
    patterns.tiny_differences,
)
"""Of an array that was computed, and is right but for last bits."""

OF_WRONG_ELEMENTS: Questions = (
    alternatives.every_element,
    special_values.nonfinite,
    special_values.nan_lost,
    factors.world_size,
    special_values.not_reduced,
    tiny_updates.crept,
    alternatives.nearest,
    factors.rare_factors,
    factors.any_factor,
    alternatives.wrong_elements,
    alternatives.within_rounding,
    lost_precision.narrowed,
    patterns.permuted,
    patterns.clamped,
    patterns.weighted,
    wrong_elements.shifted,
    patterns.zeros,
    patterns.cut_off,
    patterns.thinned,
    low_rank.low_rank,
    patterns.changed_by,
    offset.offset,
    few_bits.few_bits_in_integers,
    few_bits.few_bits_in_floats,
    wrong_elements.remainder,
    wrong_elements.seams,
    wrong_elements.tail,
)
"""Of any other array."""

OF_AN_UPDATE = (
    updates.not_updated,
    updates.by_gradient_clipped_otherwise,
    updates.by_some_micro_batches,
    updates.by_old_gradients_too,
    updates.by_rounded_gradient,
    updates.by_stale_gradient,
    updates.by_gradients_of_ranks,
    updates.by_another_adam,
    updates.scaled_by_world_size,
    updates.updated_twice,
    updates.after_wrong_loading,
    updates.without_state,
    updates.by_other_state,
    updates.by_other_decay,
    updates.by_other_momentum,
    updates.held_in_few_bits,
)

OF_A_COLLECTIVE = (
    moved_data.not_received,
    moved_data.gathered_in_other_order,
    reductions.reduction_ignored,
    reductions.infinite_sum_is_nan,
    reductions.other_extreme,
    reductions.zeros_left_out_of_product,
    reductions.narrow_sum,
    reductions.integers_computed_otherwise,
    reductions.divided_by_other_number,
    reductions.group_ignored,
    reductions.rank_counted_twice,
    reductions.means_of_means,
    reductions.other_datatype,
    reductions.rank_left_out,
    reductions.one_received_twice,
    blocks.block_of_other_reduction,
    blocks.block_cut_elsewhere,
    blocks.block_of_narrow_sum,
    blocks.block_of_other_rank,
    reductions.infinity_or_late_value,
    other_operations.memory_shared,
    other_operations.operations_mixed_up,
    reductions.wrong_divisor,
    reductions.two_ranks_added,
)
"""Of a result of a collective on one rank."""

OF_A_MESSAGE = (
    messages.overwritten_before_sent,
    messages.nothing_received,
    messages.layout_of_message_ignored,
    messages.wrong_sender,
    messages.overtaken,
)
"""Of an array that one rank has sent to another."""

OF_A_MISSING_MEAN = (
    counts.count_wraps,
    means.metric_missing,
)
"""Of a metric that a rank does not get."""

OF_A_MEAN = (
    counts.count_wraps,
    means.of_earlier_calls,
    means.nan_of_ranks_without_samples,
    counts.counts_averaged_as_integers,
    means.zero_ignored,
    counts.count_overflows,
    means.not_weighted,
    means.ranks_without_samples_counted,
    means.divided_by_count_of_earlier_call,
    means.mean_truncated,
    counts.divided_by_other_count,
    counts.half_precision_overflows,
    means.rank_missing,
    means.negative_mean_cut,
    means.single_samples_left_out,
    means.mean_rounded,
    means.by_size,
)
"""Of a wrong mean of metrics."""

OF_A_SCORE = (
    terms.of_a_narrow_count,
    ranks.of_earlier,
    rows.of_repetition,
    rows.of_labels,
    ranks.of_ranks,
    formulas.of_formula,
    terms.of_terms,
    ranks.of_some_ranks,
    rows.of_some_samples,
    rows.of_offsets,
    padding.of_zeros,
    perturbations.of_mixed,
)
"""Of a wrong score, each with the scores that it gives."""

OF_A_SPECIAL_SCORE = {
    "large values": special_scores.of_large_values,
    "NaN": special_scores.of_nan,
    "a number for NaN": special_scores.of_number_for_nan,
    "another number": special_scores.of_other_number,
}
"""Of a score by its size alone; the last where no other hypothesis fits."""

OF_A_GRADIENT = (
    weights.terms_count_wrongly,
    weights.sample_weights_count_wrongly,
    ranks_of_gradients.old_gradient_of_unused_rank,
    ranks_of_gradients.parts_of_others_missing,
    micro_batches.of_backward_before,
    micro_batches.survives_zero_grad,
    micro_batches.some_micro_batches,
    ranks_of_gradients.other_weights_of_ranks,
    ranks_of_gradients.of_other_rank,
    ranks_of_gradients.other_reductions,
    parameters.of_sharing_layers,
    parameters.of_wrong_layer,
    parameters.of_other_parameter,
    parameters.of_other_piece,
    ranks_of_gradients.old_gradient,
    ranks_of_gradients.ranks_left_out,
    ranks_of_gradients.added_to_own,
    ranks_of_gradients.loss_scaled_by_world_size,
)
"""Of a gradient that no clip has changed."""

OF_LOSSES = (
    losses.without_terms,
    losses.combined_over_ranks,
    losses.by_other_sample_weights,
    losses.by_initial_values,
    losses.by_unloaded_values,
)
"""Of the losses of a backward."""

OF_A_NORM = (norms.of_norm,)
"""Of the global norm that a clip returns."""
