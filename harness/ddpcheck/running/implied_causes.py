"""The causes that imply others: one mistake in a reduction also changes parameters, losses, replicas and norms.

A symptom is listed under a cause that implies it, and as a cause of its own if none does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType

from ..causes import (
    Cause,
    Kind,
    auxiliary_terms,
    batch_norm,
    collectives,
    gradients,
    lifecycle,
    metrics,
    operations,
    process_state,
    programs,
    randomness,
    ranks,
    rendezvous,
    replicas,
    samplers,
    scores,
    traffic,
    training,
    updates,
    values,
)


def _ids(*kinds: Kind) -> frozenset[str]:
    return frozenset(kind.id for kind in kinds)


def _all_in(*modules: ModuleType) -> frozenset[str]:
    return frozenset(each.id for module in modules for each in vars(module).values() if isinstance(each, Kind))


CONSEQUENCES = _ids(
    replicas.REPLICAS_DIFFER,
    programs.STATE_INCOMPLETE,
    programs.OWN_VALUE_IN_UPDATE,
    programs.NEARLY_RIGHT,
    values.SCALED_UPDATE,
    gradients.STATE_LEFT_BEHIND,
)
"""Causes that only blame an earlier operation: any cause of an earlier family, or of the same, implies them."""

CONDITIONS = _ids(programs.UNTIL_FROZEN, programs.COUNT_CUT_BY_LOADING, programs.NOT_REDUCED_AFTER_NO_SYNC)
"""Causes that are conditions of a failure: if all failures of a cause name one, the condition leads the group."""

LOOKS = _all_in(values) | _ids(
    gradients.OTHER_RANKS_VALUE,
    gradients.OTHERS_PARTS_MISSING,
    updates.GRADIENT_OR_RATE_SCALED,
    updates.GRADIENT_SCALED,
    updates.NOT_UPDATED,
    updates.UPDATED_BY_OWN,
)
"""Causes that only describe a wrong value, which is often explained by a more specific cause."""

SLIGHT = _ids(ranks.RANK_RAISED, replicas.LAST_BITS_DIFFER, values.FEWER_BITS, values.LAST_BITS_WRONG)
"""Errors and small differences: many mistakes lead to one somewhere."""

_LOCAL = (
    updates.UPDATED_BY_OWN,
    values.PART_NOT_REDUCED,
    values.SUMMED_NOT_AVERAGED,  # if the other ranks' parts are zero
    gradients.OTHERS_PARTS_MISSING,
    gradients.ACCUMULATED_NOT_REDUCED,
    gradients.UNUSED_RANKS_LEFT_OUT,  # a rank that alone uses a parameter
    replicas.NONFINITE_HIDDEN_FROM_RANKS,
    updates.CLIPPED_BY_OWN_NORM,
    updates.NORM_OF_OWN,
)
_FACTOR = (
    updates.GRADIENT_OR_RATE_SCALED,
    updates.GRADIENT_SCALED,
    updates.RATE_SCALED,
    values.WRONG_FACTOR,
    values.TINY_UPDATE,
)
_DIVISORS = (
    values.SUMMED_NOT_AVERAGED,
    values.DIVIDED_TOO_OFTEN,
    values.DIVIDED_TWICE_TOO_OFTEN,
    gradients.DIVIDED_BY_MICRO_BATCHES,
    *_FACTOR,
)
_SCALED = (updates.GRADIENT_OR_RATE_SCALED, updates.GRADIENT_SCALED, values.WRONG_FACTOR, values.TINY_UPDATE)
_INITIAL = (
    gradients.AT_OWN_INITIAL,
    gradients.LOSS_OF_OWN_INITIAL,
    programs.WRONG_FORWARD_VALUES,
    programs.WRONG_PREDICTION_VALUES,
    replicas.LATE_RANK_NOT_AWAITED,
    replicas.IDS_NARROWED,
    values.PERMUTED,
    values.ZERO,
)
_PLACES = (
    gradients.OTHER_PARAMETERS_GRADIENT,
    gradients.OTHER_PARAMETER_ADDED,
    updates.MOMENTUM_OF_OTHER,
    values.PERMUTED,
    values.SHIFTED,
    values.ZERO,
    replicas.NONFINITE_FROM_NOWHERE,
)
_NORMS = (
    updates.NORM_OF_OWN,
    updates.NORM_LARGEST_OF_RANKS,
    updates.NORM_SUMMED_OVER_RANKS,
    updates.NORM_IS_LARGEST,
    updates.NORM_IS_SUM,
    updates.NORM_IS_SUM_OF_NORMS,
    updates.NORM_SQUARED_AGAIN,
    updates.NORM_COUNTS_TWICE,
    updates.NORM_COUNTS_USES,
    updates.NORM_LEAVES_OUT,
    updates.NORM_AFTER_CLIP,
    updates.NORM_STALE,
    updates.NORM_SQUARE,
    updates.NORM_OF_ONE,
    programs.NORM_OF_SHARD,
    programs.NORM_OF_SCALED,
)
_NORM_LOOKS = (programs.NORM_TOO_LARGE, programs.NORM_TOO_SMALL, programs.NORMS_OF_SHARDS_ADDED)
_STATISTICS = (
    updates.STATISTICS_TWICE,
    updates.STATISTICS_STILL,
    updates.STATISTICS_STILL_IN_NO_SYNC,
    updates.STATISTICS_PUT_TOGETHER,
    updates.STATISTICS_MEAN,
    updates.STATISTICS_OF_RANK,
    updates.STATISTICS_FROM_RANK,
    updates.STATISTICS_FROM_MEAN,
    updates.VARIANCE_BIASED,
    updates.VARIANCE_BY_OWN,
    updates.VARIANCE_BY_TIMES,
    updates.MOMENTUM_SWAPPED,
)
_MISMATCHED = (
    operations.OTHER_MESSAGE_RECEIVED,
    operations.MESSAGES_DIFFER_SINCE,
    ranks.RANK_RAISED,
    ranks.MESSAGE_TOO_LARGE,
)
_OF_OTHER_LAYOUTS = (
    gradients.UNPACKED_IN_OTHER_ORDER,
    gradients.AT_OWN_INITIAL,  # by chance, of small whole numbers
    gradients.RANKS_MISSING,
    replicas.NONFINITE_FROM_NOWHERE,
    *_MISMATCHED,
)
_NARROW = (
    values.FLUSHED_TO_ZERO,
    values.FEWER_BITS,
    values.LAST_BITS_WRONG,
    values.OVERFLOW_FLOAT16,
    values.NONFINITE,
    updates.GRADIENT_IN_FLOAT16,
    programs.PROMISE_REDUCTION_DTYPE,
)
_PART_OF_SOME = (values.NOT_REDUCED, *_LOCAL, values.DIVIDED_TOO_OFTEN, values.RANKS_WEIGHTED, gradients.RANKS_MISSING)
_RACES = (collectives.HANDLE_NOT_AWAITED, collectives.CHANGED_IN_FLIGHT)

IMPLIES: dict[str, frozenset[str]] = {
    values.SUMMED_NOT_AVERAGED.id: _ids(*_FACTOR),
    values.DIVIDED_TOO_OFTEN.id: _ids(*_FACTOR),
    # where the number is that of ranks, its square, or that of micro-batches
    values.DIVIDED_BY_ELEMENTS.id: _ids(*_DIVISORS),
    # where an array has as many elements
    values.WRONG_DIVISOR.id: _ids(values.DIVIDED_BY_ELEMENTS, *_DIVISORS),
    values.LOSS_SCALE_KEPT.id: _ids(updates.EPS_FIXED, *_FACTOR),  # Adam's eps is small beside a scaled gradient
    values.NOT_REDUCED.id: _ids(
        *_LOCAL,
        gradients.PART_OF_LARGE_TENSOR_LOCAL,
        gradients.SOME_RANKS_NOT_RESET,  # the own value stays, and is counted again
        programs.GRADIENT_DROPPED,  # on a rank without an own value
    ),
    programs.NOT_REDUCED_AFTER_NO_SYNC.id: _ids(*_LOCAL, replicas.MICRO_BATCHES_LOST),
    gradients.SYNCHRONISED_INSIDE_NO_SYNC.id: _ids(traffic.REDUCED_INSIDE_NO_SYNC),
    traffic.SENT_AFTER_BACKWARD.id: _ids(values.NOT_REDUCED),
    traffic.REDUCED_IN_STEP.id: _ids(values.NOT_REDUCED, traffic.SENT_AFTER_BACKWARD, *_LOCAL, *_NORMS),
    # the other ranks' parts of the last backward are missing
    # a backward that sends nothing meets no broken connection
    gradients.LAST_BACKWARD_NOT_REDUCED.id: _ids(values.NOT_REDUCED, lifecycle.ERROR_SWALLOWED, *_LOCAL),
    replicas.NO_SYNC_LATE.id: _ids(
        values.NOT_REDUCED,
        gradients.LAST_BACKWARD_NOT_REDUCED,
        gradients.SYNCHRONISED_INSIDE_NO_SYNC,
        programs.NOT_REDUCED_AFTER_NO_SYNC,
        replicas.BUFFERS_APART_IN_NO_SYNC,
        traffic.SENDS_INSIDE_NO_SYNC,
        *_LOCAL,
    ),
    # a part may be all of a small array
    values.PART_NOT_REDUCED.id: _ids(values.NOT_REDUCED, gradients.PART_OF_LARGE_TENSOR_LOCAL),
    values.PART_DIVIDED_AGAIN.id: _ids(values.DIVIDED_TOO_OFTEN, values.TAIL_WRONG, gradients.RANKS_MISSING),
    values.TAIL_WRONG.id: _ids(values.PART_NOT_REDUCED, gradients.ADDED_TO_OWN),  # told from a few of its elements
    values.ZERO.id: _ids(gradients.PART_OF_LARGE_TENSOR_ZERO),
    # seen first after an operation that only shows it
    values.NONFINITE.id: _ids(replicas.NONFINITE_HIDDEN_FROM_RANKS, programs.CHANGES_GRADIENTS),
    # where pieces are as large as parameters, a layout of one rank shows as other parameters; the larger leads
    gradients.RANK_SENDS_OTHER_PARAMETER.id: _ids(
        gradients.RANK_SENDS_OTHER_PIECE, operations.UNUSED_LEFT_OUT, *_OF_OTHER_LAYOUTS
    ),
    gradients.RANK_SENDS_OTHER_PIECE.id: _ids(gradients.RANK_SENDS_OTHER_PARAMETER, *_OF_OTHER_LAYOUTS),
    # a message without a parameter is taken for that with it; the larger leads
    operations.UNUSED_LEFT_OUT.id: _ids(gradients.RANK_SENDS_OTHER_PARAMETER),
    # all ranks then make one update, which may be that of the largest gradient
    gradients.OTHER_RANKS_VALUE.id: _ids(*_PART_OF_SOME, updates.UPDATED_BY_LARGEST),
    gradients.ONE_RANKS_PART_ONLY.id: _ids(
        *_PART_OF_SOME, values.PART_DIVIDED_AGAIN, values.PARTS_OF_RANKS_MISSING, traffic.SENT_AFTER_BACKWARD
    ),
    values.PARTS_OF_RANKS_MISSING.id: _ids(traffic.SENT_AFTER_BACKWARD),
    gradients.MEAN_OF_SOME_RANKS.id: _ids(*_PART_OF_SOME),
    # a layout of one rank may show as that of all, and the other way round; the larger leads
    gradients.UNPACKED_IN_OTHER_ORDER.id: _ids(
        gradients.RANK_SENDS_OTHER_PARAMETER, gradients.RANK_SENDS_OTHER_PIECE, *_PLACES
    ),
    # where it is told more often than they are
    gradients.STATE_LEFT_BEHIND.id: _ids(gradients.UNPACKED_IN_OTHER_ORDER, *_PLACES),
    # the first is the same for windows of two
    gradients.FIRST_MICRO_BATCH_MISSING.id: _ids(gradients.LAST_MICRO_BATCH_ONLY, replicas.MICRO_BATCHES_LOST),
    gradients.LAST_MICRO_BATCH_MISSING.id: _ids(gradients.RANK_SENDS_OLD),  # the sum before it
    programs.REDUCED_EARLY_AFTER_NO_SYNC.id: _ids(
        gradients.LAST_MICRO_BATCH_MISSING,
        gradients.STALE,
        replicas.MICRO_BATCHES_LOST,
        replicas.NONFINITE_HIDDEN_FROM_RANKS,
        replicas.NONFINITE_HIDDEN,
        values.ZERO,
        *_SCALED,
    ),
    gradients.LAST_MICRO_BATCH_ONLY.id: _ids(replicas.MICRO_BATCHES_LOST),
    gradients.LOSS_MULTIPLIED_BY_WORLD_SIZE.id: _ids(values.SUMMED_NOT_AVERAGED, *_FACTOR),
    gradients.LOSS_DIVIDED_BY_WORLD_SIZE.id: _ids(
        values.DIVIDED_TOO_OFTEN,
        values.SUMMED_NOT_AVERAGED,  # compared with local gradients
        gradients.DIVIDED_BY_MICRO_BATCHES,  # in windows of as many as ranks
        *_FACTOR,
    ),
    auxiliary_terms.TERM_MISSING.id: _ids(programs.WRONG_FORWARD_VALUES),  # a loss that lacks several terms
    auxiliary_terms.TERM_SUMMED.id: _ids(programs.WRONG_FORWARD_VALUES),
    programs.EVALUATION_MOVES_STATISTICS.id: _ids(programs.WRONG_PREDICTION_VALUES),
    # a step from a value that is not loaded may move it or not; the larger leads
    updates.NOT_LOADED.id: _ids(programs.STATE_INCOMPLETE, gradients.LOSS_OF_UNLOADED, updates.STEPPED_FROM_INITIAL),
    updates.STEPPED_FROM_INITIAL.id: _ids(updates.NOT_LOADED),
    training.resumes.LAST_STEP_NOT_SAVED.id: _ids(updates.NOT_UPDATED),  # where the run ends with the step that is lost
    training.steps.RUN_IN_FLOAT16.id: _ids(training.steps.FROZEN_LAYER_TRAINED),  # it is rounded, too
    # the same without momentum and weight decay
    training.steps.GRADIENTS_DOUBLED.id: _ids(training.steps.STEP_TWICE_AS_LONG),
    training.steps.GRADIENTS_ZERO.id: _ids(training.steps.ENDS_WITH_EPOCH, training.steps.PARAMETERS_NOT_STEPPED),
    training.schedules.SCHEDULE_PER_EPOCH.id: _ids(training.schedules.SCHEDULE_IGNORED),  # the same in a first epoch
    # the same in windows of two micro-batches, and without momentum
    training.steps.MAX_NORM_DOUBLED.id: _ids(
        training.steps.MAX_NORM_TIMES_MICRO_BATCHES, training.steps.STEP_TAKEN_TWICE
    ),
    training.steps.STEP_TAKEN_TWICE_WITH_ZEROS.id: _ids(training.steps.EMPTY_WINDOW_STEPS_WITH_ZEROS),
    training.resumes.RESUME_LOSES_OPTIMIZER.id: _ids(updates.OPTIMIZER_STATE_LOST),
    programs.GRADIENTS_TAKEN_BY.id: _ids(programs.CHANGES_GRADIENTS),
    training.steps.MICRO_BATCHES_COUNTED_ON.id: _ids(training.schedules.RATE_READ_LATE),
    samplers.EPOCH_TIMES_SEED.id: _ids(samplers.IGNORED_AT_LENGTH),  # with seed 0
    samplers.ORDER_COMES_TWICE.id: _ids(samplers.DIVISIBLE_PADDED, samplers.PADDED_TOO_MUCH, samplers.LENGTH_APART),
    samplers.DIVISIBLE_PADDED.id: _ids(samplers.PADDED_TOO_MUCH, samplers.LENGTH_APART),
    samplers.RANK_STAYS_IN_EPOCH.id: _ids(samplers.LOADED_POSITION_IN_NEXT_EPOCH),
    batch_norm.OWN_BATCH.id: _ids(
        programs.WRONG_FORWARD_VALUES, programs.WRONG_PREDICTION_VALUES, updates.STATISTICS_PUT_TOGETHER
    ),
    metrics.SINGLE_SAMPLE_LEFT_OUT.id: _ids(metrics.RULE_BY_NAME),  # of the metrics, one has single samples
    metrics.METRIC_DIVIDED_TWICE.id: _ids(metrics.METRICS_MIXED_UP),  # beside NaN
    scores.MEAN_OF_RANK_SCORES.id: _ids(scores.NAN_OF_ONE_CLASS),  # a rank's own score is NaN
    # in windows of as many micro-batches as ranks
    training.steps.TERMS_PER_RANK.id: _ids(training.steps.TERMS_PER_MICRO_BATCH),
    training.best_weights.BEST_NOT_COPIED.id: _ids(training.best_weights.BEST_FORGOTTEN_ON_RESUME),
    # of few numbers, many come twice
    randomness.FEW_NUMBERS.id: _ids(randomness.RANK_NOT_IN_SEED, randomness.STREAMS_OVERLAP),
    randomness.COMMON_TAKEN_BY_RANK.id: _ids(randomness.COMMON_FROM_OWN),  # the rank is ahead in later calls
    # in a window of one micro-batch
    gradients.DIVIDED_IN_EVERY_BACKWARD.id: _ids(
        gradients.LOSS_DIVIDED_BY_WORLD_SIZE, values.DIVIDED_TOO_OFTEN, *_FACTOR
    ),
    gradients.DIVIDED_BY_MICRO_BATCHES.id: _ids(values.DIVIDED_TOO_OFTEN, *_FACTOR),
    gradients.NOT_RESET.id: _ids(
        gradients.SOME_RANKS_NOT_RESET,
        replicas.NAN_KEPT_AFTER_ZERO_GRAD,
        replicas.ONE_PARAMETER_NOT_RESET,
        updates.GRADIENTS_KEPT,
        updates.UPDATED_TWICE,  # by the gradient that stays
        gradients.UNUSED_RANK_SENDS_OLD,
        gradients.UNUSED_RANK_SENDS_OLD_MEAN,
    ),
    gradients.STALE.id: _ids(updates.GRADIENT_OF_STEP_BEFORE, replicas.NAN_KEPT_AFTER_ZERO_GRAD),
    # an old gradient that is sent again is added to the new one; the larger of the two leads
    gradients.UNUSED_RANK_SENDS_OLD.id: _ids(gradients.NOT_RESET),
    gradients.UNUSED_RANK_SENDS_OLD_MEAN.id: _ids(gradients.NOT_RESET),
    updates.GRADIENT_OF_STEP_BEFORE.id: _ids(updates.NOT_UPDATED),  # where no gradient came before
    updates.RATE_SCALED.id: _ids(*_SCALED),
    updates.NESTEROV.id: _ids(*_SCALED),
    updates.MOMENTUM_DAMPENED.id: _ids(*_SCALED),
    updates.DECAY_MISSING.id: _ids(updates.NOT_UPDATED),  # where the gradient is zero
    updates.MOMENTUM_IN_FLOAT16.id: _ids(values.LAST_BITS_WRONG),  # where the momentum is small
    updates.CLIPPED_BY_OWN_NORM.id: _ids(updates.NOT_CLIPPED),  # a gradient whose own norm is below the limit
    updates.CLIPPED_BY_GROUPS.id: _ids(updates.NOT_CLIPPED),
    updates.MOMENTUM_MISSING.id: _ids(updates.OPTIMIZER_STATE_LOST, *_SCALED),
    # the same in a first step with betas of which 1 - beta1 is the root of 1 - beta2
    updates.GRADIENTS_KEPT.id: _ids(updates.UPDATED_TWICE),  # by one gradient that is added to itself
    updates.EPSILON_HAT.id: _ids(updates.BIAS_CORRECTION_MISSING),
    updates.STEP_AHEAD_FROM_START.id: _ids(updates.ZERO_STEP_BEFORE),
    # where the argument is read-only
    collectives.WORKS_IN_ARGUMENT.id: _ids(collectives.ARGUMENT_MUST_BE_WRITABLE, operations.TAKES_ANOTHER_PATH),
    collectives.ARGUMENT_MUST_BE_WRITABLE.id: _ids(collectives.LAYOUTS_DIFFER),  # one of which is read-only
    # the array itself stays as it was
    collectives.WRITES_AT_START_OF_BASE.id: _ids(collectives.COPY_REDUCED),
    operations.NOT_CONVERTED_BACK.id: _ids(ranks.RESULT_VIOLATES_CONTRACT),
    collectives.BARRIER_DOES_NOT_BLOCK.id: _ids(lifecycle.ERROR_SWALLOWED),  # it meets no rank that is dead
    collectives.GROUP_KEPT.id: _ids(
        collectives.BARRIER_DOES_NOT_BLOCK,
        collectives.BARRIER_WAITS_FOR_SOME,
        ranks.LEFT_COLLECTIVE_EARLY,
        *_MISMATCHED,
    ),
    collectives.RESULT_SENT_AFTER_RETURN.id: _ids(collectives.RESULTS_SHARE_MEMORY, collectives.READ_AFTER_RETURN),
    collectives.REDUCTION_IGNORED.id: _ids(values.SUMMED_NOT_AVERAGED),
    # where the blocks of other ranks are empty, or hold what this rank has
    collectives.BLOCKS_GATHERED_EARLY.id: _ids(values.NOT_REDUCED, values.PART_NOT_REDUCED, collectives.RANK_LEFT_OUT),
    collectives.DIVIDED_BY_SIZE_OF_ARRAY.id: _ids(values.DIVIDED_BY_ELEMENTS),
    replicas.LAST_BITS_DIFFER.id: _ids(values.LAST_BITS_WRONG),
    programs.OWN_VALUE_IN_UPDATE.id: _ids(replicas.REPLICAS_DIFFER),
    # the gradient stays local; the mean of equal parameters may differ in last bits
    replicas.PARAMETER_AVERAGED.id: _ids(values.NOT_REDUCED, values.LAST_BITS_WRONG),
    replicas.BACKWARD_MOVES_PARAMETERS.id: _ids(
        programs.CONSTRUCTION_VALUE,  # or something changed it later
        programs.WRONG_FORWARD_VALUES,
        programs.WRONG_PREDICTION_VALUES,
        replicas.NAN_KEPT_AFTER_ZERO_GRAD,  # in the parameters
        updates.UPDATED_TWICE,
        updates.RATE_SCALED,
        *_SCALED,
    ),
    randomness.GLOBAL_GENERATOR_DECIDES.id: _ids(process_state.GENERATOR_CHANGED, process_state.MAKING_SEEDS),
    replicas.BROADCAST_IN_FORWARD.id: _ids(replicas.OWN_INITIAL_VALUE),  # until then
    replicas.OWN_INITIAL_VALUE.id: _ids(programs.CONSTRUCTION_VALUE, replicas.BUFFERS_APART_IN_NO_SYNC, *_INITIAL),
    replicas.INITIAL_VALUE_OF_OTHER.id: _ids(programs.CONSTRUCTION_VALUE, *_INITIAL, *_STATISTICS),
    programs.CONSTRUCTION_VALUE.id: _ids(*_INITIAL),
    gradients.LOSS_OF_OWN_INITIAL.id: _ids(gradients.AT_OWN_INITIAL, values.PERMUTED, values.ZERO),
    gradients.LOSS_OF_MEAN_INITIAL.id: _ids(replicas.INITIAL_VALUES_AVERAGED, *_INITIAL),
    replicas.INITIAL_VALUES_AVERAGED.id: _ids(gradients.LOSS_OF_MEAN_INITIAL, *_INITIAL),
    replicas.GRADIENT_GATHERED_ELSEWHERE.id: _ids(programs.NO_GRADIENTS_ANYWHERE, gradients.STALE),
    values.ROUNDED_AS.id: _ids(*_NARROW),
    values.SENT_AS.id: _ids(*_NARROW),
    values.WHOLE_NUMBERS.id: _ids(values.FIXED_POINT, values.ZERO, *_NARROW),
    values.FIXED_POINT.id: _ids(values.ROUNDED_AS, *_NARROW),
    values.FEWER_BITS.id: _ids(values.LAST_BITS_WRONG, values.FLUSHED_TO_ZERO, values.INTEGERS_AS_FLOAT),
    values.INTEGERS_AS_FLOAT.id: _ids(updates.STATISTICS_STILL),  # a large count does not grow by one
    rendezvous.RANK_BY_ARRIVAL.id: _ids(
        collectives.ROWS_IN_WRONG_ORDER,
        collectives.ROW_OF_OTHER_RANK,
        collectives.BROADCAST_NOT_RECEIVED,
        collectives.NON_ROOT_TAKES_PART,
    ),
    # the rest of a message is left, or is taken for the next one
    rendezvous.SHORT_READ_TAKEN_FOR_ALL.id: _ids(
        ranks.ALL_SEND_NONE_RECEIVES,
        ranks.ALL_WAIT_IN_ONE_OPERATION,
        ranks.RANKS_IN_DIFFERENT_OPERATIONS,
        ranks.LEFT_COLLECTIVE_EARLY,
        *_MISMATCHED,
    ),
    # a race gives any value
    **{race.id: _all_in(values, gradients, updates, programs, replicas) for race in _RACES},
    # the others may wait without an end
    operations.RUN_ENDED_BY_SOME.id: _ids(ranks.LEFT_COLLECTIVE_EARLY),
    training.early_stopping.STOPS_BY_OWN_LOSS.id: _ids(operations.RUN_ENDED_BY_SOME),
    ranks.LEFT_COLLECTIVE_EARLY.id: _ids(ranks.RANK_RAISED, operations.OTHER_MESSAGE_RECEIVED),
    **{norm.id: _ids(*_NORM_LOOKS) for norm in _NORMS},
    updates.NORM_IS_LARGEST.id: _ids(updates.CLIPPED_BY_LARGEST, *_NORM_LOOKS),
    **{wrong.id: _ids(programs.WRONG_PREDICTION_VALUES) for wrong in _STATISTICS},
    operations.EVALUATION_COMMUNICATES.id: _ids(ranks.RANK_RAISED),
    gradients.SHOULD_NOT_MOVE.id: _ids(gradients.MOVED_WITHOUT_GRADIENT, ranks.RESULT_VIOLATES_CONTRACT),
}
"""The causes that each cause implies, by id."""


def adds_to(told: Iterable[str], causes: Sequence[Cause]) -> bool:
    """Whether the likeliest of these causes is a mistake of its own beside the told ones: no guess, no description of a
    value or norm, and implied by none of them.
    """
    if not causes or causes[0].certainty == "possible":
        return False
    known = frozenset(told)
    return causes[0].id not in known.union(LOOKS, _ids(*_NORM_LOOKS), CONSEQUENCES, SLIGHT, *map(implied_by, known))


def implied_by(cause: str) -> frozenset[str]:
    """All causes that a cause implies, directly or indirectly."""
    found: set[str] = set()
    open_ends: Iterable[str] = (cause,)
    while new := {each for one in open_ends for each in IMPLIES.get(one, ())} - found:
        found |= new
        open_ends = new
    return frozenset(found - {cause})
