"""Replicas that keep the caller's arrays, or values of earlier calls."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import after, before, given, in_place_of, optimizer_part

RESUMED = "check_resumed_training_matches_one_process"
STAYS = "check_globally_unused_parameters_do_not_move"
GIVEN = "check_replica_does_not_change_given_arrays"


@before("make_network")
def broadcast_into_the_initial_values(replica: PlainReplica, model: ModelSpec, initial: Mapping[str, Array]) -> None:
    """The arrays of initial values belong to the caller."""
    for array in initial.values():
        array[...] = replica.comm.broadcast(array)


@after("load_state")
def momentum_not_copied(replica: PlainReplica, state: Mapping[str, Array]) -> None:
    velocity = optimizer_part(replica, "velocity")
    velocity |= {name: np.asarray(state[f"optimizer.velocity.{name}"]) for name in velocity}


@fault("state-in-a-window-is-the-last-one", RESUMED, cause="state-of-construction")
class StateOfAnEarlierSave(PlainReplica):
    """Inside no_sync(), state() returns its previous result instead of the present state."""

    told: Mapping[str, Array] | None = None

    def state(self) -> dict[str, Array]:
        if self.syncing or self.told is None:
            self.told = super().state()
        return {name: array.copy() for name, array in self.told.items()}


@in_place_of("zero_gradients")
def zeros_for_all_parameters(replica: PlainReplica) -> None:
    """Then momentum moves unused parameters."""
    replica.zero_grad()
    replica.synced = {name: np.zeros_like(replica.network.parameters[name]) for name in replica.network.learned}


@given("load_state")
def names_without_module(replica: PlainReplica, state: Mapping[str, Array]) -> dict[str, Array]:
    """The wrapper's prefix is removed anywhere in a name."""
    return {name.replace("module.", ""): value for name, value in state.items()}


# fmt: off
table(
    globals(),
    Fault("rank-0-written-over-initial-values",
          "Rank 0's parameters are broadcast into the caller's arrays of initial values.",
          where=always, effect=broadcast_into_the_initial_values,
          caught_by=GIVEN, cause="works-in-callers-arrays", several_replicas=True),
    Fault("loaded-momentum-is-the-callers", "load_state() uses the caller's momentum arrays without copying them.",
          where=always, effect=momentum_not_copied,
          caught_by=GIVEN, cause="works-in-callers-arrays"),
    Fault("zeros-where-no-gradient-was",
          "zero_gradients() gives a zero gradient also to parameters that had none, so momentum moves them.",
          where=always, effect=zeros_for_all_parameters,
          caught_by=STAYS, cause="moved-without-gradient", seen_in=("pytorch/pytorch#28294",)),
    Fault("module-taken-out-of-names",
          "load_state() removes `module.` anywhere in a parameter's name, not only at its start.",
          where=always, effect=names_without_module,
          caught_by="check_resumed_training_matches_one_process", cause="rank-raised", world_size=1),
)
# fmt: on
