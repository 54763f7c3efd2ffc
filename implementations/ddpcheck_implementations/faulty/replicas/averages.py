"""Replicas with wrong moving averages of parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.job import OptimizerSpec
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import after, around, in_place_of, result

GIVEN = "check_replica_does_not_change_given_arrays"
AVERAGED = "check_averaged_weights_match_one_process"
PREFIX = "average."


class Averaging(PlainReplica):
    """Correct: moving averages start from rank 0's values and follow the synchronised parameters."""

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
    """Moving averages follow the step of the rank's own gradient, not of the synchronised one."""

    def synchronise(self, batch_size: int) -> None:
        self.own = dict(self.local)
        super().synchronise(batch_size)

    def average(self, parameters: Mapping[str, Array]) -> None:
        moved = {
            name: self.spec.lr * (self.synced[name] - own) for name, own in self.own.items() if name in self.synced
        }
        super().average({name: p + moved.get(name, 0) for name, p in parameters.items()})


@around("start")
def averages_of_own_initial_values(replica: Averaging, start: Callable[[ModelSpec], None], model: ModelSpec) -> None:
    """Copy the averages before rank 0's parameters arrive."""
    own = replica.parameters()
    start(model)
    replica.averages = own


@after("load_state")
def averages_begin_anew(replica: Averaging, state: Mapping[str, Array]) -> None:
    """Restart the averages from the parameters."""
    replica.averages = replica.parameters()


@in_place_of("step")
def averaged_before_the_step(replica: Averaging) -> None:
    replica.average(replica.network.parameters)
    PlainReplica.step(replica)


@in_place_of("average")
def weights_swapped(replica: Averaging, parameters: Mapping[str, Array]) -> None:
    """The decay is the weight of the new values, as in lerp()."""
    for name, average in replica.averages.items():
        average += np.asarray((parameters[name] - average) * replica.spec.averaging, average.dtype)


@in_place_of("average")
def decay_that_warms_up(replica: Any, parameters: Mapping[str, Array]) -> None:
    """In the first steps, the decay is smaller."""
    steps = replica.steps + 1
    decay = min(replica.spec.averaging, (1 + steps) / (10 + steps))
    for name, average in replica.averages.items():
        average += np.asarray((parameters[name] - average) * (1 - decay), average.dtype)


@around("average")
def averaged_twice(
    replica: Averaging, average: Callable[[Mapping[str, Array]], None], parameters: Mapping[str, Array]
) -> None:
    """The step and a callback both update the averages."""
    average(parameters)
    average(parameters)


@around("average")
def averaged_by_every_rank(
    replica: Averaging, average: Callable[[Mapping[str, Array]], None], parameters: Mapping[str, Array]
) -> None:
    """Each rank in turn updates averages that all ranks share."""
    for _ in range(replica.world):
        average(parameters)


@in_place_of("average")
def warmed_up_decay_as_weight(replica: Any, parameters: Mapping[str, Array]) -> None:
    """The weight of the new values is the decay, which is smaller in the first steps."""
    steps = replica.steps + 1
    decay = min(replica.spec.averaging, (1 + steps) / (10 + steps))
    for name, average in replica.averages.items():
        average += np.asarray((parameters[name] - average) * decay, average.dtype)


@after("average")
def averages_in_float16(replica: Averaging, parameters: Mapping[str, Array]) -> None:
    for average in replica.averages.values():
        average[...] = average.astype(np.float16)


@fault("average-updated-per-backward", AVERAGED, cause="average-by-backwards", averaged_weights=True)
class FollowsBackwards(Averaging):
    """Moving averages advance with every backward except the first after a step."""

    backwards = 0

    def backward(self, batch: Batch) -> float:
        self.backwards += 1
        if self.backwards > 1:
            self.average(self.network.parameters)
        return super().backward(batch)

    def step(self) -> None:
        super().step()
        self.backwards = 0


@around("average")
def averages_of_what_has_a_gradient(
    replica: Averaging, average: Callable[[Mapping[str, Array]], None], parameters: Mapping[str, Array]
) -> None:
    shown, averages = replica._shown(), replica.averages
    kept = {name: averages[name] for name in averages if name not in shown}
    replica.averages = {name: averages[name] for name in averages if name in shown}
    average(parameters)
    replica.averages |= kept


@in_place_of("load_state")
def averages_not_copied(replica: Averaging, state: Mapping[str, Array]) -> None:
    PlainReplica.load_state(replica, state)
    replica.averages = {name: state[PREFIX + name] for name in replica.averages}


class SkipsToo(Averaging):
    """Correct: a step with non-finite gradients is skipped, and the moving averages do not advance."""

    def step(self) -> None:
        if all(np.isfinite(gradient).all() for gradient in self.synced.values()):
            super().step()


averaging_and_skipping = fault("averaging-and-skipping", averaged_weights=True, skips_nonfinite=True)(SkipsToo)


@around("step")
def averaged_after_a_skipped_step(replica: Averaging, step: Callable[[], None]) -> None:
    before = {name: average.copy() for name, average in replica.averages.items()}
    step()
    if all(np.array_equal(average, before[name]) for name, average in replica.averages.items()):
        replica.average(replica.network.parameters)


@result("averaged")
def parameters_where_frozen(replica: PlainReplica, averaged: dict[str, Array]) -> dict[str, Array]:
    return replica.parameters() | {name: averaged[name] for name in averaged if name in replica.network.learned}


# fmt: off
table(
    globals(),
    Fault("average-starts-before-broadcast",
          "Moving averages start from the rank's own initial values, before rank 0's arrive.",
          where=always, effect=averages_of_own_initial_values.of(Averaging),
          caught_by=AVERAGED, cause="averages-start-apart", averaged_weights=True),
    Fault("average-not-saved", "Moving averages restart from the parameters after a resume.",
          where=always, effect=averages_begin_anew.of(Averaging),
          caught_by=AVERAGED, cause="averages-are-parameters", averaged_weights=True),
    Fault("average-taken-before-step", "Moving averages take the parameters before the step.",
          where=always, effect=averaged_before_the_step.of(Averaging),
          caught_by=AVERAGED, cause="average-late", averaged_weights=True),
    Fault("average-weights-swapped", "Moving averages give the decay as weight to the new values.",
          where=always, effect=weights_swapped.of(Averaging),
          caught_by=AVERAGED, cause="average-weights-swapped", averaged_weights=True),
    Fault("average-decay-warms-up",
          "The decay of moving averages is smaller in the first steps, although a fixed one was asked for.",
          where=always, effect=decay_that_warms_up.of(Averaging),
          caught_by=AVERAGED, cause="average-warms-up", averaged_weights=True),
    Fault("average-updated-in-a-callback-too", "Moving averages advance twice per step.",
          where=always, effect=averaged_twice.of(Averaging),
          caught_by=AVERAGED, cause="average-updated-twice", averaged_weights=True),
    Fault("average-updated-by-every-rank", "Moving averages advance once per rank in every step.",
          where=always, effect=averaged_by_every_rank.of(Averaging),
          caught_by=AVERAGED, cause="average-updated-per-rank", world_size=3, averaged_weights=True),
    Fault("average-weights-swapped-while-warming-up",
          "Moving averages give a smaller, growing decay as weight to the new values.",
          where=always, effect=warmed_up_decay_as_weight.of(Averaging),
          caught_by=AVERAGED, cause="average-warms-up-swapped", averaged_weights=True),
    Fault("averages-in-float16", "Moving averages are stored in float16.",
          where=always, effect=averages_in_float16.of(Averaging),
          caught_by=AVERAGED, cause="average-held-in", averaged_weights=True),
    Fault("average-skips-parameters-without-gradient",
          "Moving averages of parameters without a gradient do not advance.",
          where=always,
          effect=averages_of_what_has_a_gradient.of(Averaging),
          caught_by=AVERAGED, cause="average-not-updated", averaged_weights=True),
    Fault("average-aliases-state", "load_state() uses the caller's arrays of moving averages without copying them.",
          where=always, effect=averages_not_copied.of(Averaging),
          caught_by=GIVEN, cause="works-in-callers-arrays", averaged_weights=True),
    Fault("skipped-step-is-averaged", "A skipped step advances the moving averages.",
          where=always, effect=averaged_after_a_skipped_step.of(SkipsToo),
          caught_by="check_nonfinite_step_is_skipped_on_all_ranks", cause="skip-moves-averages", world_size=1,
          averaged_weights=True, skips_nonfinite=True),
    Fault("frozen-layers-leave-the-average", "The moving average of a frozen parameter is its present value.",
          where=always, effect=parameters_where_frozen.of(Averaging),
          caught_by=AVERAGED, cause="average-is-parameter", averaged_weights=True),
)
# fmt: on
