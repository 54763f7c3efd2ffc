"""Tables of hypotheses about whole training runs, each beside the run that one process emulates."""

from __future__ import annotations

from ..training import best_weights, checkpoints, early_stopping, final_parameters, repeated_epochs

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
    early_stopping.nan_does_not_count,
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
