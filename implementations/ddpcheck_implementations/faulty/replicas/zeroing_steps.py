"""Replicas that clear gradients in step(), or fail to although they promise it."""

from __future__ import annotations

from ..base import PlainReplica, fault

LEFT = "check_step_leaves_no_gradients_where_promised"


class ZeroesInStep(PlainReplica):
    """step() also clears gradients."""

    def step(self) -> None:
        super().step()
        self.zero_grad()


@fault("step-zeroes-gradients-unpromised", "check_random_training_programs_match_one_process")
class Unpromised(ZeroesInStep):
    """step() clears gradients, although it should not."""


@fault("step-keeps-gradients", LEFT, cause="step-leaves-gradients", step_zeroes_gradients=True)
class KeepsGradients(PlainReplica):
    """step() keeps gradients, although it is promised to clear them."""


@fault("step-keeps-the-last-gradient", LEFT, cause="step-leaves-gradients", step_zeroes_gradients=True)
class KeepsTheLast(PlainReplica):
    """step() clears all gradients except those of the last bucket."""

    def step(self) -> None:
        super().step()
        last = dict(list(self.synced.items())[-1:])
        self.zero_grad()
        self.synced = last


# ------------------------------------------------------------------------------------------------- correct, but unusual


@fault("step-zeroes-gradients", step_zeroes_gradients=True)
class Promised(ZeroesInStep):
    """Correct if promised: step() clears gradients."""
