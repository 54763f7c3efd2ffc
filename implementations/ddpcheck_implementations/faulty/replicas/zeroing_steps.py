"""Engines whose step() zeroes the gradients that it has used."""

from __future__ import annotations

from ..base import PlainReplica, fault

LEFT = "check_step_leaves_no_gradients_where_promised"


class ZeroesInStep(PlainReplica):
    """The next backward begins from nothing."""

    def step(self) -> None:
        super().step()
        self.zero_grad()


@fault("step-zeroes-gradients-unpromised", "check_random_training_programs_match_one_process")
class Unpromised(ZeroesInStep):
    """Programs that take two steps with one backward, or look at gradients after a step, find none."""


@fault("step-keeps-gradients", LEFT, cause="step-leaves-gradients", step_zeroes_gradients=True)
class KeepsGradients(PlainReplica):
    """Only zero_grad() zeroes them, though the promise says otherwise."""


@fault("step-keeps-the-last-gradient", LEFT, cause="step-leaves-gradients", step_zeroes_gradients=True)
class KeepsTheLast(PlainReplica):
    """The gradients are zeroed bucket by bucket, and the last bucket is left out."""

    def step(self) -> None:
        super().step()
        last = dict(list(self.synced.items())[-1:])
        self.zero_grad()
        self.synced = last


# ------------------------------------------------------------------------------------------------- correct, but unusual


@fault("step-zeroes-gradients", step_zeroes_gradients=True)
class Promised(ZeroesInStep):
    """Gradients are read before step(), as after it there are none."""
