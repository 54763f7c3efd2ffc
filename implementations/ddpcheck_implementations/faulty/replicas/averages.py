"""Averages of the parameters, kept beside them: weights that no gradient reaches, and no reduction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.job import OptimizerSpec
from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ..base import PlainReplica, fault

GIVEN = "check_replica_does_not_change_given_arrays"
AVERAGED = "check_averaged_weights_match_one_process"
PREFIX = "average."


class Averaging(PlainReplica):
    """Correct: the averages start from what was broadcast, and follow the synchronised parameters."""

    def __init__(
        self, model: ModelSpec, initial: Mapping[str, Array], optimizer: OptimizerSpec, comm: Any, rank: int, world: int
    ) -> None:
        self.spec = optimizer
        super().__init__(model, initial, optimizer, comm, rank, world)

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.averages = self.parameters()

    def step(self) -> None:
        super().step()
        self.average(self.network.parameters)

    def average(self, parameters: Mapping[str, Array]) -> None:
        for name, average in self.averages.items():
            average *= self.spec.averaging
            average += np.asarray(parameters[name] * (1 - self.spec.averaging), average.dtype)

    def averaged(self) -> dict[str, Array]:
        return {name: average.copy() for name, average in self.averages.items()}

    def state(self) -> dict[str, Array]:
        return super().state() | {PREFIX + name: average for name, average in self.averaged().items()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        self.averages = {name: np.array(state[PREFIX + name]) for name in self.averages}


averaging = fault("averaging", seen_in=("HorizonRobotics/alf#1475",), averaged_weights=True)(Averaging)


@fault(
    "non-gradient-weights-updated-locally",
    AVERAGED,
    seen_in=("HorizonRobotics/alf#1475",),
    cause="averages-of-own-values",
    averaged_weights=True,
)
class FromOwnGradients(Averaging):
    """The average takes up the step that this rank's own gradient would have made."""

    def synchronise(self, batch_size: int) -> None:
        self.own = dict(self.local)
        super().synchronise(batch_size)

    def average(self, parameters: Mapping[str, Array]) -> None:
        moved = {
            name: self.spec.lr * (self.synced[name] - own) for name, own in self.own.items() if name in self.synced
        }
        super().average({name: p + moved.get(name, 0) for name, p in parameters.items()})


@fault(
    "average-starts-before-broadcast",
    AVERAGED,
    cause="averages-start-apart",
    averaged_weights=True,
)
class StartsBefore(Averaging):
    """The copy for the averages is made before rank 0's parameters arrive."""

    def start(self, model: ModelSpec) -> None:
        own = self.parameters()
        super().start(model)
        self.averages = own


@fault("average-not-saved", AVERAGED, cause="averages-are-parameters", averaged_weights=True)
class NotSaved(Averaging):
    """load_state starts the averages anew from the parameters."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        self.averages = self.parameters()


@fault("average-taken-before-step", AVERAGED, cause="average-late", averaged_weights=True)
class BeforeStep(Averaging):
    """The average takes up the parameters of the step before."""

    def step(self) -> None:
        self.average(self.network.parameters)
        PlainReplica.step(self)


@fault("average-weights-swapped", AVERAGED, cause="average-weights-swapped", averaged_weights=True)
class Swapped(Averaging):
    """The decay is taken for the weight of what is new, as lerp's."""

    def average(self, parameters: Mapping[str, Array]) -> None:
        for name, average in self.averages.items():
            average += np.asarray((parameters[name] - average) * self.spec.averaging, average.dtype)


@fault("average-decay-warms-up", AVERAGED, cause="average-warms-up", averaged_weights=True)
class WarmsUp(Averaging):
    """In the first steps the average follows faster, which nobody asked for."""

    steps = 0

    def average(self, parameters: Mapping[str, Array]) -> None:
        self.steps += 1
        decay = min(self.spec.averaging, (1 + self.steps) / (10 + self.steps))
        for name, average in self.averages.items():
            average += np.asarray((parameters[name] - average) * (1 - decay), average.dtype)


@fault("average-updated-per-backward", AVERAGED, cause="average-by-backwards", averaged_weights=True)
class FollowsBackwards(Averaging):
    """Every backward but the first of a step moves the average, too."""

    backwards = 0

    def backward(self, batch: Batch) -> float:
        self.backwards += 1
        if self.backwards > 1:
            self.average(self.network.parameters)
        return super().backward(batch)

    def step(self) -> None:
        super().step()
        self.backwards = 0


@fault("average-skips-parameters-without-gradient", AVERAGED, cause="average-not-updated", averaged_weights=True)
class PassesOver(Averaging):
    """The average goes along with the parameters that the step updates."""

    def average(self, parameters: Mapping[str, Array]) -> None:
        kept = {name: average for name, average in self.averages.items() if name not in self._shown()}
        self.averages = {name: average for name, average in self.averages.items() if name not in kept}
        super().average(parameters)
        self.averages |= kept


@fault("average-aliases-state", GIVEN, cause="works-in-callers-arrays", averaged_weights=True)
class LiesInTheState(Averaging):
    """load_state takes the state's arrays for the averages, and goes on to change them."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        PlainReplica.load_state(self, state)
        self.averages = {name: state[PREFIX + name] for name in self.averages}


class SkipsToo(Averaging):
    """Correct: a step that is not finite is skipped, and so is what it would have done to the averages."""

    def step(self) -> None:
        if all(np.isfinite(gradient).all() for gradient in self.synced.values()):
            super().step()


averaging_and_skipping = fault("averaging-and-skipping", averaged_weights=True, skips_nonfinite=True)(SkipsToo)


@fault(
    "skipped-step-is-averaged",
    "check_nonfinite_step_is_skipped_on_all_ranks",
    cause="skip-moves-averages",
    world_size=1,
    averaged_weights=True,
    skips_nonfinite=True,
)
class SkippedIsAveraged(SkipsToo):
    """The averages are updated after every step, one that was skipped included."""

    def step(self) -> None:
        before = {name: average.copy() for name, average in self.averages.items()}
        super().step()
        if all(np.array_equal(average, before[name]) for name, average in self.averages.items()):
            self.average(self.network.parameters)


@fault("frozen-layers-leave-the-average", AVERAGED, cause="average-is-parameter", averaged_weights=True)
class FrozenLeave(Averaging):
    """Averages are kept of what learns; for the rest the parameter is shown."""

    def averaged(self) -> dict[str, Array]:
        shown = self.parameters()
        return shown | {name: array for name, array in super().averaged().items() if name in self.network.learned}
