"""Optimizers of replicas that are right about gradients: what a step takes, what it moves, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.job import OptimizerSpec
from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ..base import PlainReplica, added, fault
from .freezing import UNFROZEN
from .programs import ANY

ADAM = "check_adam_matches_one_process"
UNUSED = "check_globally_unused_parameters_do_not_move"
AFTER = "check_parameters_after_sgd_steps_are_exact"
STEPPED = "check_optimizer_steps_every_element_of_large_tensors"
LATER = "check_gradients_stay_exact_after_many_backwards"


class WithSettings(PlainReplica):
    """It knows what its optimizer is set to."""

    def __init__(self, model: ModelSpec, initial: Mapping[str, Array], optimizer: OptimizerSpec, *rest: object) -> None:
        self.settings = optimizer
        super().__init__(model, initial, optimizer, *rest)  # type: ignore[arg-type]  # as given

    def forgotten(self) -> list[str]:
        """Parameters without gradient."""
        shown = self._shown()
        return [name for name in self.network.parameters if name not in shown]


@fault("momentum-without-gradient", UNUSED, UNFROZEN, cause="moved-without-gradient")
class MomentumWithoutGradient(WithSettings):
    """A parameter without gradient goes on by the momentum that it had, as if the gradient were zero."""

    def step(self) -> None:
        velocity = getattr(self.optimizer, "_velocity", {})
        for name in self.forgotten():
            if name in velocity:
                velocity[name] *= self.settings.momentum
                self.network.parameters[name] -= self.settings.lr * velocity[name]
        super().step()


@fault(
    "momentum-in-the-gradients-memory",
    "check_parameters_after_sgd_steps_are_exact",
    cause="momentum-overwritten",
)
class MomentumSharesMemory(PlainReplica):
    """The first step keeps the gradient itself as momentum, no copy: by the second step the next backward has overwritten it."""

    steps = 0

    def step(self) -> None:
        self.steps += 1
        velocity = getattr(self.optimizer, "_velocity", {})
        if self.steps == 2:
            velocity.update({name: np.array(gradient) for name, gradient in self._shown().items() if name in velocity})
        super().step()


@fault("decay-without-gradient", UNUSED, cause="moved-without-gradient")
class DecayWithoutGradient(WithSettings):
    """Weights decay in a loop over all parameters, those without gradient included."""

    def step(self) -> None:
        for name in self.forgotten():
            self.network.parameters[name] *= 1 - self.settings.lr * self.settings.weight_decay
        super().step()


@fault("decay-stays-in-the-gradient", ANY, cause="changes-gradients")
class DecayStaysInTheGradient(WithSettings):
    """A step adds weight decay to the gradient in place, where the next backward without zero_grad finds it."""

    def step(self) -> None:
        decayed = {name: self.settings.weight_decay * self.network.parameters[name] for name in self.synced}
        super().step()
        for name, decay in decayed.items():
            self.synced[name] = np.asarray(self.synced[name] + decay, decay.dtype)


@fault(
    "master-weights-not-loaded",
    "check_resumed_training_matches_one_process",
    cause="master-copy-not-loaded",
)
class MasterWeightsNotLoaded(PlainReplica):
    """Steps are taken on a copy of the parameters, which load_state() leaves as it is."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.masters = self.parameters()

    def step(self) -> None:
        for name, master in self.masters.items():
            self.network.parameters[name][...] = master
        super().step()
        self.masters = self.parameters()


@fault(
    "clip-limit-halves-after-eight-steps",
    "check_clipping_uses_the_global_gradient_norm",
    cause="update-scaled",
)
class LimitHalves(PlainReplica):
    """The limit of the norm follows a schedule that nobody asked for: from the ninth step on it is half."""

    steps = 0

    def step(self) -> None:
        super().step()
        self.steps += 1

    def clip(self, max_norm: float) -> float:
        return super().clip(max_norm / 2 if self.steps >= 8 else max_norm)


@fault("parameters-averaged-after-local-steps", ADAM, cause="parameters-averaged")
class AveragedAfterwards(PlainReplica):
    """Each rank steps by its own gradient, and parameters are averaged: as good with SGD, and other than that with Adam."""

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


@fault("steps-with-zeros-before-the-first", ADAM, cause="adam-step-ahead-from-start")
class StepsWithZerosFirst(WithSettings):
    """A step of zeros makes the optimizer's state, for a checkpoint to be loaded into, and counts."""

    def step(self) -> None:
        before, steps = self.parameters(), getattr(self.optimizer, "_steps", {})
        self.optimizer.step({name: np.zeros_like(g) for name, g in self._shown().items() if name not in steps})
        for name, value in before.items():
            self.network.parameters[name][...] = value
        super().step()


@fault("zeroes-what-it-began-with", UNFROZEN, cause="gradient-not-reset")
class ZeroesTheFirstOnes(PlainReplica):
    """zero_grad() goes through the parameters that learned at the start."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.known = set(self.network.learned)

    def zero_grad(self) -> None:
        kept = {name: gradient for name, gradient in self.synced.items() if name not in self.known}
        super().zero_grad()
        self.synced = kept


@fault("state-of-what-learns-only", ANY, cause="optimizer-state-lost")
class StateOfWhatLearns(PlainReplica):
    """A checkpoint holds the optimizer's state of those layers that learn when it is written."""

    def state(self) -> dict[str, Array]:
        learned = {f"optimizer.velocity.{name}" for name in self.network.learned}
        return {name: v for name, v in super().state().items() if not name.startswith("optimizer.") or name in learned}


@fault("bias-correction-ends", LATER, cause="adam-bias-correction-missing")
class CorrectionEnds(PlainReplica):
    """After eight steps Adam's bias correction is left out, which is near 1 by then with the usual betas."""

    def step(self) -> None:
        counts = getattr(self.optimizer, "_steps", {})
        told = {name: int(count) for name, count in counts.items()}
        for count in counts.values():
            count[...] = count if count < 8 else 1 << 30
        super().step()
        for name, count in told.items():
            counts[name][...] = count + (name in self._shown())


@fault("momentum-begins-anew", LATER, cause="optimizer-state-lost")
class BeginsAnew(PlainReplica):
    """Every tenth step begins a cycle, with a momentum of its own."""

    steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps % 10 == 0:
            getattr(self.optimizer, "_velocity", {}).clear()
        super().step()


@fault("scalars-without-weight-decay", STEPPED, cause="weight-decay-missing")
class ScalarsWithoutDecay(WithSettings):
    """Weight decay is for parameters that have a dimension, whatever was asked for."""

    def step(self) -> None:
        decay, parameters = self.settings.weight_decay, self.network.parameters
        for gradients in (self.synced, self.local):
            for name in [name for name in gradients if not parameters[name].ndim]:
                gradients[name] = np.asarray(gradients[name] - decay * parameters[name], parameters[name].dtype)
        super().step()


@fault("odd-parameter-not-shared", AFTER, cause="not-updated")
class OddOneNotShared(PlainReplica):
    """Every rank steps its share of the parameters; those left over by a division by the ranks are not sent to the others."""

    def step(self) -> None:
        parameters, shown = self.network.parameters, self._shown()
        owners = {name: number % self.world for number, name in enumerate(parameters)}
        self.optimizer.step({name: shown[name] for name in shown if owners[name] == self.rank})
        for name in list(parameters)[: len(parameters) // self.world * self.world]:
            parameters[name][...] = self.comm.broadcast(parameters[name], owners[name])


@fault("second-moment-in-bfloat16", STEPPED, cause="adam-moment-held-in")
class SecondMomentShort(PlainReplica):
    """A checkpoint holds Adam's second moments with eight bits."""

    def state(self) -> dict[str, Array]:
        return {name: _short(v) if name.startswith("optimizer.second.") else v for name, v in super().state().items()}


def _short(array: Array) -> Array:
    significand, exponent = np.frexp(array)
    return np.asarray(np.ldexp(np.rint(significand * 2**8) / 2**8, exponent), array.dtype)


@fault("count-of-steps-saved-in-seven-bits", LATER, cause="count-cut-by-loading")
class StepsInSevenBits(PlainReplica):
    """A checkpoint has seven bits for Adam's count of steps."""

    def state(self) -> dict[str, Array]:
        state = super().state()
        counts = {name: np.asarray(value % 128) for name, value in state.items() if name.startswith("optimizer.steps.")}
        return {**state, **counts}


@fault("second-moments-of-local-gradients", ADAM, cause="own-value-in-update")
class LocalSecondMoments(PlainReplica):
    """The second moments begin with the rank's own first gradients, which are kept before they are reduced."""

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
