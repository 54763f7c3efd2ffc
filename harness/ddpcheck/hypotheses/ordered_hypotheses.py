"""The hypotheses about each kind of wrong value, in the order in which they are tried: the likeliest first.

A hypothesis is a small function from evidence to causes. Those about an array or a number also give the value that each
cause predicts, on every rank.

Laws use most tables through evidence.py, causes_of_wrong_numbers.py and causes_of_wrong_arrays.py, and the others by
choose_causes.py.

Two kinds are not in these tables. A whole training run is compared with emulated runs by other rules, which
training/whole_runs.py, resumes.py and some_steps.py list. A law calls a hypothesis directly if no other one explains
the same evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..causes.cause import Given
from . import failed_ranks, lifecycle, losses, norms, observed_arrays, process_state, programs, rendezvous, traffic
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
from .collectives import blocks, calls, circumstances, messages, moved_data, other_operations, reductions
from .errors import backwards, invalid_results, other_errors
from .errors import collectives as errors_of_collectives
from .gradients import micro_batches, parameters, weights
from .gradients import ranks as ranks_of_gradients
from .metrics import counts, means, names, nonfinite
from .randomness import common_numbers, repeats, stream_pairs
from .replicas import averages, batch_norm, joining, large_tensors, skipped_steps, special_runs
from .samplers import orders, resuming, shares
from .scores import formulas, padding, perturbations, ranks, rows, special_scores, terms
from .training import best_weights, checkpoints, early_stopping, final_parameters, repeated_epochs
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

OF_AN_EXPLAINED_RESULT = (
    circumstances.product_by_logarithms,
    circumstances.product_rounded,
    circumstances.wait_returns_early,
    circumstances.as_of_values,
)
"""Of such a result, after the hypotheses about its values."""

OF_A_MESSAGE = (
    messages.overwritten_before_sent,
    messages.nothing_received,
    messages.layout_of_message_ignored,
    messages.wrong_sender,
    messages.overtaken,
)
"""Of an array that one rank has sent to another."""

OF_EQUAL_CALLS = (
    calls.first_result_again,
    calls.earlier_result,
    calls.own_array_returned,
    calls.zero_result,
    calls.other_result,
)
"""Of the wrong result of one of many equal calls."""

OF_AN_EARLY_BARRIER = (
    circumstances.barrier_gave_up,
    circumstances.barrier_does_not_block,
)
"""Of a barrier that a rank left before another one entered."""

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

OF_OTHER_NAMES = (
    names.metrics_by_position,
    names.earlier_names_returned,
    names.names_rewritten,
    names.name_prefix_cut,
    names.names_of_earlier_call,
    names.names_in_other_order,
    names.names_missing,
    names.named_metric_not_aggregated,
    names.rule_by_name,
    names.capped_by_name,
    names.names_cut_short,
    names.names_confused,
)
"""Of named metrics, before those about a mean."""

OF_MIXED_UP_NAMES = (
    names.equal_metrics_reduced_together,
    names.metrics_mixed_up,
)
"""Of named metrics, after those about a mean."""

OF_LOST_NONFINITE = (
    nonfinite.opposite_infinities,
    nonfinite.nonfinite_left_out,
)
"""Of a number in place of the mean of values that are not all finite."""

OF_METRICS_BESIDE_NAN = (
    nonfinite.nan_spreads,
    nonfinite.rank_left_out_for_nan,
    nonfinite.mixed_up_beside_nan,
)
"""Of a metric beside another one that is NaN on one rank."""

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

OF_A_MISSING_GRADIENT = (
    observed_arrays.zeros_for_unused,
    observed_arrays.use_told_by_value,
    observed_arrays.gradient_dropped,
)
"""Of a gradient that should exist, and does not."""

OF_ONE_OF_SEVERAL_ARRAYS = (
    observed_arrays.no_gradients_anywhere,
    observed_arrays.other_ranks_gradient,
    observed_arrays.others_are_averaged,
    observed_arrays.as_alone,
)
"""Of a wrong array beside others."""

OF_SEVERAL_ARRAYS = (
    observed_arrays.clipped_unasked,
    observed_arrays.own_value_in_update,
    observed_arrays.update_not_shared,
)
"""Of all wrong arrays of an observation: further causes, all that fit."""

OF_A_VALUE_IN_A_JOB = (
    programs.just_done,
    programs.gradients_taken,
    programs.window_counted,
    programs.window_ended_by,
    programs.loud_rank,
    programs.promised_dtype_meant,
    programs.lower_precision_meant,
)
"""Of a wrong value at its place in a Job: all that fit."""

OF_A_LATE_VALUE = (
    programs.clips_counted,
    programs.right_until_frozen,
    programs.count_cut_by_loading,
    programs.backwards_counted,
)
"""Of a wrong value after many right ones."""

OF_AN_UNEXPLAINED_VALUE = (programs.idle_rank_skips,)
"""Of a wrong value that no other hypothesis explains."""

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

OF_ABSENT_SAMPLES = (
    shares.absent_past_few_bits,
    shares.same_share,
    shares.rank_stays_in_epoch,
    shares.repeated_on_rank,
    shares.orders_apart,
    shares.tail_absent,
)
"""Of samples that go to no rank."""

OF_ANOTHER_LENGTH = (
    shares.whole_data_set,
    shares.reading_empty,
    shares.divisible_padded,
    shares.divisible_cut,
    shares.padding_taken_once,
    shares.padded_too_much,
    shares.not_padded,
    shares.not_cut,
    shares.remainder_on_one_rank,
    shares.sharded_twice,
)
"""Of a rank that has more or fewer samples than the remainder rule allows."""

OF_ANOTHER_TOTAL = (
    shares.remainder_lost,
    shares.starved_ranks_filled,
    shares.remainder_padded,
)
"""Of ranks that have more or fewer samples together than there are."""

OF_ANOTHER_LEN = (
    orders.length_changes,
    orders.length_apart,
)
"""Of len() of a sampler that gives another number of samples."""

OF_A_LOST_HEAD = (
    orders.head_cut,
    orders.natural_order_reversed,
    orders.shuffled_unasked,
)
"""Of orders without sample 0 that should be natural ones, by rank."""

OF_AN_UNSHUFFLED_ORDER = (
    orders.natural_order_reversed,
    orders.shuffled_unasked,
)
"""Of orders that should ascend."""

OF_EQUAL_EPOCHS = (
    orders.set_epoch_ignored,
    orders.epoch_times_seed,
    orders.epoch_0_is_none,
    orders.epoch_truncated,
)
"""Of epochs that have one order."""

OF_EQUAL_SEEDS = (
    orders.epoch_not_shuffled,
    orders.seed_ignored,
    orders.seed_0_is_none,
    orders.seed_truncated,
)
"""Of seeds that have one order."""

OF_THE_SAME_ORDER = (
    orders.seed_ignored_at_length,
    orders.epoch_ignored_at_length,
)
"""Of two readings that have one order, at one number of samples."""

OF_THE_SAME_SUBSET = (
    orders.one_order_moved,
    orders.shuffled_within_shares,
)
"""Of a rank that has the same samples in two epochs."""

OF_AN_UNTOLD_ORDER = (
    orders.epoch_of_another_sampler,
    orders.first_epoch_not_0,
)
"""Of a new sampler's order before set_epoch(), which is not that of epoch 0."""

OF_ANOTHER_PIECE = (
    resuming.loaded_position_not_saved,
    resuming.position_of_epoch_before,
    resuming.position_not_restored,
    resuming.state_narrowed,
    resuming.rest_reshuffled,
    resuming.position_since_load,
    resuming.resumed_elsewhere,
    resuming.nothing_left,
    resuming.rest_of_other_epoch,
    resuming.rest_padded,
    resuming.resumed_order_differs,
)
"""Of indices that a sampler with a loaded state gives in the epoch of this state."""

OF_ANOTHER_NEXT_EPOCH = (
    resuming.set_epoch_lost,
    resuming.order_of_next_epoch_differs,
    resuming.loaded_position_stays,
)
"""Of indices that it gives after this epoch."""

OF_ANOTHER_EPOCH_AT_ONCE = (
    resuming.set_epoch_lost_at_once,
    resuming.loaded_position_in_next_epoch,
)
"""Of indices that it gives in an epoch that is set straight after loading."""

OF_ALIKE_STREAMS = (
    stream_pairs.mirrored,
    stream_pairs.common_is_one_ranks,
    stream_pairs.some_shared,
    stream_pairs.seed_is_sum,
    stream_pairs.streams_overlap,
    stream_pairs.seed_0_is_none,
    stream_pairs.number_truncated,
    stream_pairs.number_ignored,
)
"""Of two streams of random numbers that have numbers in common."""

OF_DEPENDENT_STREAMS = (
    stream_pairs.streams_scaled,
    stream_pairs.streams_in_order,
    stream_pairs.streams_depend,
)
"""Of two streams that are alike place by place."""

OF_OTHER_NUMBERS = (
    common_numbers.drawn_ahead,
    common_numbers.this_seed_ignored,
)
"""Of numbers that a stream does not give again."""

OF_COMMON_NUMBERS = (
    common_numbers.common_rounded,
    common_numbers.common_disturbed,
)
"""Of common numbers that are not rank 0's."""

OF_SINGLE_COMMON_NUMBERS = (
    common_numbers.single_common_from_own,
    common_numbers.common_taken_by_rank,
    common_numbers.rank_in_common_seed,
)
"""Of such numbers that are drawn one by one."""

OF_SINGLE_NUMBERS = (
    repeats.single_from_shared,
    repeats.rank_not_in_seed,
)
"""Of own numbers, drawn one by one, that come again."""

OF_REPEATED_CALLS = (
    repeats.call_restarts,
    repeats.few_numbers,
)
"""Of numbers of two calls, half by each, that come again."""

OF_REPEATED_NUMBERS = (
    repeats.block_repeated,
    repeats.few_numbers,
)
"""Of many numbers of which some come again."""

OF_MORE_SENT = (
    traffic.everything_through_one_rank,
    traffic.known_algorithm,
    traffic.sent_twice,
    traffic.more_than_least,
)
"""Of more bytes than a collective needs."""

OF_BYTES_INSIDE_NO_SYNC = (
    traffic.reduced_inside_no_sync,
    traffic.sends_inside_no_sync,
)
"""Of bytes that are sent inside no_sync()."""

OF_TOO_FEW_COUNTED = (
    traffic.partly_counted,
    traffic.none_counted,
)
"""Of fewer bytes, by counts(), than any algorithm sends."""

OF_A_WRONG_COUNT = (
    traffic.counts_scaled,
    traffic.not_counted,
)
"""Of a number of bytes that counts() tells, and that is not the number sent."""

OF_MANY_MESSAGES = (
    traffic.gradients_alone,
    traffic.small_groups,
)
"""Of many messages in a backward of small gradients."""

OF_A_CHANGED_PROCESS = (
    process_state.generators_changed,
    process_state.settings_changed,
)
"""Of generators and settings that change: all that fit."""

OF_A_GROWING_PROCESS = (
    process_state.memory_grows,
    process_state.resource_left,
)
"""Of a resource of which each call leaves more behind."""

OF_ANOTHER_END = (
    final_parameters.frozen_layer_trained,
    final_parameters.settings_ignored,
)
"""Of the final parameters of a training run that cannot be emulated."""

OF_AN_EMULATED_END = (
    final_parameters.frozen_layer_trained,
    final_parameters.state_lost_on_resume,
    final_parameters.by_other_rules,
    final_parameters.in_some_steps,
    final_parameters.unreported_samples,
    final_parameters.run_in_float16,
)
"""Of the final parameters of one that can."""

OF_ONE_OTHER_BEST_EPOCH = (
    best_weights.best_forgotten_on_resume,
    best_weights.later_of_equal_best,
    best_weights.checkpoint_before_best,
    best_weights.lowest_starts_finite,
    best_weights.best_is_last_of_early_stop,
    best_weights.best_by_own_loss,
    best_weights.best_not_copied,
    best_weights.small_gain_ignored,
)
"""Of best weights that are, on all ranks, the parameters of one epoch that is not the best."""

OF_BEST_WEIGHTS = (
    best_weights.best_kept_before_last_step,
    best_weights.best_of_epoch,
    best_weights.best_by_each_rank,
    best_weights.best_differs_between_ranks,
)
"""Of any wrong best weights."""

OF_ANOTHER_STOP = (
    early_stopping.equal_loss_counts_as_lower,
    early_stopping.never_stops,
    early_stopping.by_other_rules,
    early_stopping.no_rule_of_stopping,
)
"""Of a run that stops too early or too late."""

OF_A_SPECIAL_RUN = (
    checkpoints.checkpoint_not_there_yet,
    checkpoints.ranks_decide_resume,
    checkpoints.nobody_waits_for_rank_0,
)
"""Of a resumed run that fails where the checkpoint is on one rank, or on a slow disk."""

OF_OTHER_EPOCHS = (
    checkpoints.epoch_not_restored,
    checkpoints.epochs_trained_again,
    checkpoints.epochs_skipped,
)
"""Of a resumed run that trains more or fewer epochs."""

OF_OTHER_SAMPLES = (
    checkpoints.random_state_of_rank_0,
    checkpoints.epochs_from_zero,
    checkpoints.position_kept_on_resume,
    checkpoints.order_not_by_seed_and_epoch,
)
"""Of other samples after resuming a run."""

OF_A_REPEATED_EPOCH = (
    repeated_epochs.epochs_counted_round,
    repeated_epochs.set_epoch_ignored,
)
"""Of an epoch of a shuffled run that has an earlier one's order."""

OF_A_FAILED_RANK = (
    failed_ranks.result_violates_contract,
    failed_ranks.message_too_large,
    failed_ranks.uncaught_compiled_error,
    failed_ranks.rank_died,
    failed_ranks.rank_raised,
)
"""Of a rank that failed without hanging: the certain facts."""

OF_A_HANG = (
    failed_ranks.group_waits_without_peers,
    failed_ranks.waits_for_a_program,
    failed_ranks.imports_modules,
    failed_ranks.close_waits,
    failed_ranks.local_operation_does_not_end,
    failed_ranks.waits_without_peers,
    failed_ranks.sent_message_lost,
    failed_ranks.broadcast_not_forwarded,
    failed_ranks.left_collective_early,
    failed_ranks.ranks_in_different_operations,
    failed_ranks.all_send_none_receives,
    failed_ranks.all_wait_in_one_operation,
)
"""Of ranks that hang, from their positions."""

OF_AN_ERROR = (
    backwards.undefined_in_torch,
    invalid_results.empty_array,
    invalid_results.zero_dimensions,
    invalid_results.block_of_rank,
    invalid_results.result_of_another_call,
    invalid_results.not_converted_back,
    invalid_results.shape_lost,
    errors_of_collectives.root_not_found,
    errors_of_collectives.other_message,
    errors_of_collectives.layouts_differ,
    errors_of_collectives.empty_array,
    errors_of_collectives.zero_dimensions,
    other_errors.few_samples,
    backwards.no_samples,
    backwards.idle_rank_skips,
    backwards.evaluation_communicates,
    backwards.dropped_window_remembered,
    backwards.messages_differ_since,
    backwards.unused_left_out,
    other_errors.gave_up_waiting,
    other_errors.of_the_check,
)
"""Of a rank that failed in an operation of a Job."""

OF_A_DISTURBED_START = (
    rendezvous.short_read_taken_for_all,
    rendezvous.port_looked_up_free,
    rendezvous.stranger_taken_for_rank,
    rendezvous.old_world_left,
    rendezvous.name_shared_by_worlds,
    rendezvous.rank_by_arrival,
    rendezvous.early_rank_not_awaited,
)
"""Of a Job that fails after a disturbed start."""

OF_AN_UNAWARE_RANK = (
    lifecycle.death_unnoticed_in_group,
    lifecycle.noticed_by_others,
    lifecycle.death_unnoticed,
    lifecycle.ended_by_death,
)
"""Of a rank that does not raise an error after the death of another one."""

OF_UNNOTICED_MISMATCH = (
    lifecycle.error_not_passed_on,
    lifecycle.messages_unlabelled,
)
"""Of ranks that make different calls, and do not all raise."""

OF_FAILURE_AS_SUCCESS = (
    lifecycle.signal_taken_for_success,
    lifecycle.status_lost,
)
"""Of a launcher that reports a failed rank as a success."""

OF_A_MISREPORT = (
    lifecycle.own_kill_reported,
    lifecycle.ranks_awaited_in_order,
    lifecycle.output_not_passed_on,
    lifecycle.last_words_lost,
)
"""Of a launcher that misreports the first failed rank."""

OF_DIFFERENT_REPLICAS = (
    special_runs.last_bits_differ,
    special_runs.replicas_differ,
)
"""Of an array that should have the same bits on all ranks."""

OF_AVERAGES = (
    averages.averages_start_apart,
    averages.averages_of_own,
    averages.averages_are_parameters,
)
"""Of an observation of averages of parameters, some of which are wrong."""

OF_A_PART_OF_A_GRADIENT = (
    large_tensors.part_is_zero,
    large_tensors.part_is_local,
)
"""Of wrong elements of a large gradient."""

OF_JOINED_PARAMETERS = (
    joining.join_leaves_state,
    joining.join_wrong_divisor,
    joining.join_stale,
    joining.join_steps_missing,
)
"""Of wrong values in a Job that begins with join()."""

OF_TWO_FORWARDS = (
    special_runs.forward_changes_buffers,
    special_runs.batches_taken_as_one,
    special_runs.losses_averaged,
)
"""Of a failure of two forward passes with one backward."""

OF_CHANGED_ARGUMENTS = (
    special_runs.view_of_argument,
    special_runs.callers_mapping_changed,
)
"""Of arguments that a replica changes after a call."""

OF_NONFINITE_GRADIENT = (
    special_runs.nonfinite_hidden,
    special_runs.nonfinite_from_nowhere,
)
"""Of an element of a gradient that is finite where no rank's is, or the other way round."""

OF_BUFFERS_APART = (
    special_runs.replaced_buffers_not_sent,
    special_runs.statistics_of_each_rank,
)
"""Of buffers that are not rank 0's where a forward begins."""

OF_A_STEP_NOT_SKIPPED = (
    skipped_steps.skip_moves_averages,
    skipped_steps.step_taken,
    skipped_steps.skip_decided_per_rank,
    skipped_steps.loss_scales_apart,
    skipped_steps.skip_leaves_state,
)
"""Of a step that all ranks should skip."""

OF_BATCH_NORM_STATISTICS = (
    batch_norm.variance_put_together,
    batch_norm.statistics_of_wrong_mean,
    batch_norm.mean_divided_by_other_count,
)
"""Of running statistics of synchronised batch norm."""

OF_REMEASURING = (
    batch_norm.remeasure_counts,
    batch_norm.remeasure_changes_mode,
    batch_norm.remeasured_wrong_mean,
)
"""Of values in a Job that remeasures statistics."""

OF_A_BATCH_NORM_LOSS = (
    batch_norm.loss_of_own_batch,
    batch_norm.loss_of_other_statistics,
)
"""Of the loss of a rank with synchronised batch norm."""

OF_A_BATCH_NORM_GRADIENT = (
    batch_norm.batch_norm_reduced_twice,
    batch_norm.backward_not_over_all,
)
"""Of the gradient of a model with synchronised batch norm."""
