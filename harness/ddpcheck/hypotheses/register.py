"""The hypotheses about each kind of wrong value, in the order in which they are tried: the likeliest first."""

from __future__ import annotations

from .updates import updates

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
