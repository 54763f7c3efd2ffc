"""The hypotheses about each kind of wrong value, in the order in which they are tried: the likeliest first.

A hypothesis is a small function from evidence to causes. Those about an array or a number also give the value that each cause
would lead to, on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..causes.cause import Given
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
