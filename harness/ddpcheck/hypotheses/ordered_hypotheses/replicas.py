"""Tables of hypotheses about replicas in special runs: averages, join(), two forwards, skipped steps, batch norm."""

from __future__ import annotations

from ..replicas import averages, batch_norm, joining, large_tensors, skipped_steps, special_runs

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
    joining.join_ends_at_rank,
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
