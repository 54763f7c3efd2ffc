"""Replicas that share state with other replicas of the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ddpcheck.contract.adapter import Batch
from ddpcheck.job import OptimizerSpec
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ...numpy_network.optimizers import Adam, Sgd
from ..base import PlainReplica, fault

ALONE = "check_replicas_in_one_process_are_independent"


@fault("no-sync-of-all-replicas", ALONE, cause="replicas-share-state", several_replicas=True)
class NoSyncOfAll(PlainReplica):
    """no_sync() of one replica turns synchronisation off for all replicas."""

    between_processes = True
    _flags: ClassVar[list[bool]] = [True]

    @property
    def syncing(self) -> bool:
        return self._flags[0]

    @syncing.setter
    def syncing(self, value: bool) -> None:
        self._flags[0] = value


@fault("gradients-of-the-latest-replica", ALONE, cause="replicas-share-state", several_replicas=True)
class GradientsOfTheLatest(PlainReplica):
    """All replicas accumulate gradients in one place, which a new replica clears."""

    between_processes = True
    _gathered: ClassVar[list[dict[str, Array]]] = [{}]

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self._gathered[0] = {}

    def backward(self, batch: Batch) -> float:
        self.local = self._gathered[0]
        loss = super().backward(batch)
        self._gathered[0] = self.local
        return loss

    def zero_grad(self) -> None:
        super().zero_grad()
        self._gathered[0] = {}


@fault(
    "momentum-by-the-names-of-parameters",
    ALONE,
    cause="replicas-share-state",
    several_replicas=True,
)
class MomentumByName(PlainReplica):
    """All optimizers share one table of state by parameter name, which a new replica clears."""

    between_processes = True

    _table: ClassVar[dict[str, dict[str, Array]]] = {}

    def __init__(
        self, model: ModelSpec, initial: Mapping[str, Array], optimizer: OptimizerSpec, comm: Any, rank: int, world: int
    ) -> None:
        super().__init__(model, initial, optimizer, comm, rank, world)
        self._table.clear()

    def step(self) -> None:
        self._use_table()
        super().step()

    def state(self) -> dict[str, Array]:
        self._use_table()
        return super().state()

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        self._table.update({name: getattr(self.optimizer, name) for name in self._names()})

    def _use_table(self) -> None:
        for name in self._names():
            setattr(self.optimizer, name, self._table.setdefault(name, {}))

    def _names(self) -> tuple[str, ...]:
        assert isinstance(self.optimizer, (Sgd, Adam))
        return ("_velocity",) if isinstance(self.optimizer, Sgd) else ("_first", "_second", "_steps")
