"""What is given and taken to be the implementation's own, what is kept of an earlier call, or made where nothing was."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ...numpy_network import Network
from ..base import PlainReplica, fault

RESUMED = "check_resumed_training_matches_one_process"
STAYS = "check_globally_unused_parameters_do_not_move"
GIVEN = "check_replica_does_not_change_given_arrays"


@fault(
    "rank-0-written-over-initial-values",
    GIVEN,
    cause="works-in-callers-arrays",
    several_replicas=True,
)
class WrittenOver(PlainReplica):
    """The first broadcast is received in the arrays that the caller has built the model from."""

    def make_network(self, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
        for array in initial.values():
            array[...] = self.comm.broadcast(array)
        return super().make_network(model, initial)


@fault("loaded-momentum-is-the-callers", GIVEN, cause="works-in-callers-arrays")
class LoadedAsItIs(PlainReplica):
    """Momentum that is loaded is not copied: each further step changes the state that it came from."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        velocity: dict[str, Array] = getattr(self.optimizer, "_velocity", {})
        velocity |= {name: np.asarray(state[f"optimizer.velocity.{name}"]) for name in velocity}


@fault("state-in-a-window-is-the-last-one", RESUMED, cause="state-of-construction")
class StateOfAnEarlierSave(PlainReplica):
    """Inside no_sync() nothing is gathered, and state() tells what it told before."""

    told: Mapping[str, Array] | None = None

    def state(self) -> dict[str, Array]:
        if self.syncing or self.told is None:
            self.told = super().state()
        return {name: array.copy() for name, array in self.told.items()}


@fault("zeros-where-no-gradient-was", STAYS, seen_in=("pytorch/pytorch#28294",), cause="moved-without-gradient")
class ZerosForNone(PlainReplica):
    """zero_gradients() makes zeros for all parameters, with which momentum moves those that were not used."""

    def zero_gradients(self) -> None:
        self.zero_grad()
        self.synced = {name: np.zeros_like(self.network.parameters[name]) for name in self.network.learned}


@fault(
    "module-taken-out-of-names",
    "check_resumed_training_matches_one_process",
    cause="rank-raised",
    world_size=1,
)
class ModuleTakenOut(PlainReplica):
    """A wrapper's states have `module.` before every name, which is taken out wherever it stands."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state({name.replace("module.", ""): value for name, value in state.items()})
