"""Tables of hypotheses about gradients, losses, norms and updates, and about values in a longer Job."""

from __future__ import annotations

from .. import losses, norms, programs
from ..gradients import micro_batches, parameters, weights
from ..gradients import ranks as ranks_of_gradients
from ..updates import updates

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
    updates.by_shared_momentum,
    updates.by_other_decay,
    updates.by_other_momentum,
    updates.held_in_few_bits,
)

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
    ranks_of_gradients.at_own_initial_values,
    parameters.with_its_parameter,
)
"""Of a gradient that no clip has changed."""

OF_A_VALUE_IN_A_JOB = (
    programs.just_done,
    programs.state_in_few_bits,
    programs.gradients_taken,
    programs.window_counted,
    programs.window_ended_by,
    programs.loud_rank,
    programs.idle_rank_not_reduced,
    programs.promised_dtype_meant,
    programs.lower_precision_meant,
    programs.not_reduced_after_no_sync,
    programs.reduced_early_after_no_sync,
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
    losses.by_narrowed_ids,
    losses.by_other_eps,
    losses.by_initial_values,
    losses.by_unloaded_values,
)
"""Of the losses of a backward."""

OF_A_NORM = (norms.of_norm,)
"""Of the global norm that a clip returns."""
