"""What goes wrong in a sequence of operations only: each operation alone is right."""

from __future__ import annotations

from collections.abc import Mapping

from ddpcheck.adapter import Batch
from ddpcheck.values import Array

from .base import PlainReplica, fault

ANY = "check_any_training_program_goes_as_on_one_process"


@fault("step-clears-gradients", "classic", ANY, words="got none")
class StepClears(PlainReplica):
    """A step ends with zero_grad, which nobody asked for."""

    def step(self) -> None:
        super().step()
        self.zero_grad()


@fault("backward-after-step-starts-anew", "classic", ANY, words="what was accumulated before is lost")
class WindowEndsWithStep(PlainReplica):
    """The first backward after a step begins with zero_grad."""

    stepped = False

    def step(self) -> None:
        super().step()
        self.stepped = True

    def backward(self, batch: Batch) -> float:
        if self.stepped:
            self.zero_grad()
        self.stepped = False
        return super().backward(batch)


@fault("saving-drops-momentum", "classic", ANY, words="optimizer state was lost")
class SavingDropsMomentum(PlainReplica):
    """state() moves the optimizer's state out instead of copying it."""

    def state(self) -> dict[str, Array]:
        made = super().state()
        self.optimizer.load_state({})
        return made


@fault("loaded-state-is-shared", "classic", ANY, words="the state is no copy")
class TrainsInLoadedState(PlainReplica):
    """After load_state training goes on in the arrays of the state, which a second load finds changed."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        self.loaded = state

    def step(self) -> None:
        super().step()
        for name, array in self.network.parameters.items():
            if hasattr(self, "loaded"):
                self.loaded[name][...] = array


@fault("zero-grad-twice", "classic", ANY, words="not reduced")
class ZeroGradTwice(PlainReplica):
    """Two zero_grads after one another leave the hooks disarmed."""

    fresh = False

    def zero_grad(self) -> None:
        self.armed = not self.fresh
        self.fresh = True
        super().zero_grad()

    def backward(self, batch: Batch) -> float:
        self.fresh = False
        return super().backward(batch)

    def reduce(self, name: str, gradient: Array) -> Array:
        return super().reduce(name, gradient) if getattr(self, "armed", True) else gradient
