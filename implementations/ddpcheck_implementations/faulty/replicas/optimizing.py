"""Replicas with right gradients and wrong inputs, updates or side effects of the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, added, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.gradients import every_step
from ..engine.replicas import (
    around,
    before,
    from_step,
    given,
    gradients_put_back,
    optimizer_part,
    result,
    saved,
    settings,
    sharded_step,
    steps_taken,
    without_gradient,
)
from .freezing import UNFROZEN
from .programs import ANY

ADAM = "check_adam_matches_one_process"
UNUSED = "check_globally_unused_parameters_do_not_move"
AFTER = "check_parameters_after_sgd_steps_are_exact"
STEPPED = "check_optimizer_steps_every_element_of_large_tensors"
LATER = "check_gradients_stay_exact_after_many_backwards"


@before("step")
def momentum_without_gradient(replica: PlainReplica) -> None:
    """Step as if the gradient were zero."""
    velocity = optimizer_part(replica, "velocity")
    for name in without_gradient(replica):
        if name in velocity:
            velocity[name] *= settings(replica).momentum
            replica.network.parameters[name] -= settings(replica).lr * velocity[name]


@before("step")
def momentum_overwritten_by_the_gradient(replica: PlainReplica) -> None:
    """Like a first step that stores the gradient without a copy, so the next backward writes to the momentum."""
    velocity = optimizer_part(replica, "velocity")
    velocity.update({name: np.array(gradient) for name, gradient in replica._shown().items() if name in velocity})


@before("step")
def weight_decay_without_gradient(replica: PlainReplica) -> None:
    for name in without_gradient(replica):
        replica.network.parameters[name] *= 1 - settings(replica).lr * settings(replica).weight_decay


@around("step")
def weight_decay_left_in_the_gradient(replica: PlainReplica, step: Callable[[], None]) -> None:
    """The next backward without zero_grad() adds to it."""
    decayed = {name: settings(replica).weight_decay * replica.network.parameters[name] for name in replica.synced}
    step()
    for name, decay in decayed.items():
        replica.synced[name] = np.asarray(replica.synced[name] + decay, decay.dtype)


@fault(
    "master-weights-not-loaded",
    "check_resumed_training_matches_one_process",
    cause="master-copy-not-loaded",
)
class MasterWeightsNotLoaded(PlainReplica):
    """load_state() does not restore the copy of the parameters that the optimizer steps on."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.masters = self.parameters()

    def step(self) -> None:
        for name, master in self.masters.items():
            self.network.parameters[name][...] = master
        super().step()
        self.masters = self.parameters()


@given("clip")
def half_the_limit(replica: PlainReplica, max_norm: float) -> float:
    return max_norm / 2


@fault("parameters-averaged-after-local-steps", ADAM, cause="parameters-averaged")
class AveragedAfterwards(PlainReplica):
    """Each rank steps with its own gradient, and parameters are averaged, which is wrong for Adam."""

    own: Mapping[str, Array] = {}  # never changed

    def synchronise(self, batch_size: int) -> None:
        self.own = added(self.own, {name: self.mine(name) for name in self.used_somewhere()})
        super().synchronise(batch_size)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.own = {}

    def step(self) -> None:
        self.optimizer.step(self.own)
        for name in self.own:
            self.network.parameters[name][...] = self.reduce(name, self.network.parameters[name])


@before("step")
def a_step_of_zeros_first(replica: PlainReplica) -> None:
    """A step with zero gradients creates the optimizer's state and counts."""
    values, steps = replica.parameters(), optimizer_part(replica, "steps")
    replica.optimizer.step({name: np.zeros_like(g) for name, g in replica._shown().items() if name not in steps})
    for name, value in values.items():
        replica.network.parameters[name][...] = value


@fault("zeroes-what-it-began-with", UNFROZEN, cause="gradient-not-reset")
class ZeroesTheFirstOnes(PlainReplica):
    """zero_grad() clears only parameters that were trainable at construction."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.known = set(self.network.learned)

    def zero_grad(self) -> None:
        kept = {name: gradient for name, gradient in self.synced.items() if name not in self.known}
        super().zero_grad()
        self.synced = kept


@result("state")
def optimizer_state_of_what_learns(replica: PlainReplica, state: dict[str, Array]) -> dict[str, Array]:
    learned = {f"optimizer.velocity.{name}" for name in replica.network.learned}
    return {name: value for name, value in state.items() if not name.startswith("optimizer.") or name in learned}


@around("step")
def bias_correction_left_out_after_eight_steps(replica: PlainReplica, step: Callable[[], None]) -> None:
    counts = optimizer_part(replica, "steps")
    told = {name: int(count) for name, count in counts.items()}
    for count in counts.values():
        count[...] = count if count < 8 else 1 << 30
    step()
    for name, steps in told.items():
        counts[name][...] = steps + (name in replica._shown())


@before("step")
def momentum_cleared(replica: PlainReplica) -> None:
    optimizer_part(replica, "velocity").clear()


@around("step")
def no_weight_decay_of_scalars(replica: PlainReplica, step: Callable[[], None]) -> None:
    decay, parameters = settings(replica).weight_decay, replica.network.parameters
    with gradients_put_back(replica):
        for gradients in (replica.synced, replica.local):
            for name in [name for name in gradients if not parameters[name].ndim]:
                gradients[name] = np.asarray(gradients[name] - decay * parameters[name], parameters[name].dtype)
        step()


def without_the_remainder(replica: PlainReplica, owners: dict[str, int]) -> dict[str, int]:
    """Do not broadcast the parameters left over after division by the world size."""
    return dict(list(owners.items())[: len(owners) // replica.world * replica.world])


def _short(array: Array) -> Array:
    significand, exponent = np.frexp(array)
    return np.asarray(np.ldexp(np.rint(significand * 2**8) / 2**8, exponent), array.dtype)


@fault("second-moments-of-local-gradients", ADAM, cause="own-value-in-update")
class LocalSecondMoments(PlainReplica):
    """Adam's second moments start from the rank's own gradients."""

    own: Mapping[str, Array] = {}  # never changed in place

    def synchronise(self, batch_size: int) -> None:
        self.own = {**self.local, **self.own}
        super().synchronise(batch_size)

    def step(self) -> None:
        second = getattr(self.optimizer, "_second", {})
        before = frozenset(second)
        super().step()
        for name in second.keys() & self.own.keys() - before:
            second[name][...] = self.own[name] ** 2 / 1000


@fault("momentum-by-shape", AFTER, cause="momentum-shared")
class MomentumByShape(PlainReplica):
    """SGD's momentum is kept by the shape of a parameter, so parameters of one shape share it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.held: dict[tuple[int, ...], Array] = {}

    def step(self) -> None:
        spec = settings(self)
        if spec.name != "sgd" or not spec.momentum:
            super().step()
            return
        velocity = optimizer_part(self, "velocity")
        for name, gradient in self._shown().items():
            if gradient.shape in self.held:
                velocity[name] = self.held[gradient.shape]
            self.optimizer.step({name: gradient})
            self.held[gradient.shape] = velocity[name]


# fmt: off
table(
    globals(),
    Fault("momentum-without-gradient", "Momentum moves parameters that have no gradient.",
          where=always, effect=momentum_without_gradient,
          caught_by=(UNUSED, UNFROZEN), cause="moved-without-gradient"),
    Fault("momentum-in-the-gradients-memory",
          "The first momentum shares memory with the gradient, which the next backward overwrites.",
          where=steps_taken(1), effect=momentum_overwritten_by_the_gradient,
          caught_by="check_parameters_after_sgd_steps_are_exact", cause="momentum-overwritten"),
    Fault("decay-without-gradient", "Weight decay moves parameters that have no gradient.",
          where=always, effect=weight_decay_without_gradient,
          caught_by=UNUSED, cause="moved-without-gradient"),
    Fault("decay-stays-in-the-gradient", "step() adds weight decay to the gradient itself.",
          where=always, effect=weight_decay_left_in_the_gradient,
          caught_by=ANY, cause="changes-gradients"),
    Fault("clip-limit-halves-after-eight-steps", "After eight steps, the clipping limit is halved.",
          where=from_step(8), effect=half_the_limit,
          caught_by="check_clipping_uses_the_global_gradient_norm", cause="update-scaled"),
    Fault("steps-with-zeros-before-the-first", "A step with zero gradients precedes every first step.",
          where=always, effect=a_step_of_zeros_first,
          caught_by=ADAM, cause="adam-step-ahead-from-start"),
    Fault("state-of-what-learns-only", "A checkpoint lacks the optimizer state of frozen parameters.",
          where=always, effect=optimizer_state_of_what_learns,
          caught_by=ANY, cause="optimizer-state-lost"),
    Fault("bias-correction-ends", "Adam omits the bias correction after eight steps.",
          where=always, effect=bias_correction_left_out_after_eight_steps,
          caught_by=LATER, cause="adam-bias-correction-missing"),
    Fault("momentum-begins-anew", "Every tenth step clears the momentum.",
          where=every_step(10), effect=momentum_cleared,
          caught_by=LATER, cause="optimizer-state-lost"),
    Fault("scalars-without-weight-decay", "Weight decay leaves out parameters without dimensions.",
          where=always, effect=no_weight_decay_of_scalars,
          caught_by=STEPPED, cause="weight-decay-missing"),
    Fault("odd-parameter-not-shared",
          "A sharded optimizer does not broadcast the parameters left over after division by the world size.",
          where=always, effect=sharded_step(without_the_remainder),
          caught_by=AFTER, cause="not-updated"),
    Fault("second-moment-in-bfloat16", "Adam's second moments are saved with eight bits of precision.",
          where=always, effect=saved("optimizer.second.", _short),
          caught_by=STEPPED, cause="adam-moment-held-in"),
    Fault("count-of-steps-saved-in-seven-bits", "Adam's step count is saved in seven bits.",
          where=always,
          effect=saved("optimizer.steps.", lambda count: count % 128),
          caught_by=LATER, cause="count-cut-by-loading"),
)
# fmt: on
