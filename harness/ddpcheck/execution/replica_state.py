"""The replica of a rank, with its model, data and initial values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np

from ..contract.adapter import Batch, Facets, Replica
from ..job import Job
from ..models.spec import ModelSpec
from ..seeded_values import Array, poison
from ..trace import MAKING
from .result_validation import Declared, offered, offered_method

_FEW_BYTES = 1 << 16
Options = tuple[tuple[str, float | str], ...]


class ReplicaState:
    """A Job's replica on one rank, built at its first use, with its saved states.

    saved: states by name. lent: arguments of make_replica and load_state by call and name, with copies; mappings: their
    names. windows: the open contexts of no_sync(). switched: parameters of layers that were frozen or unfrozen.
    """

    def __init__(self, facets: Facets, job: Job, rank: int) -> None:
        self._facets, self._job, self._rank = facets, job, rank
        self._replica: Replica | None = None
        self._built_with: tuple[Options, str | None] = (), None
        self.saved: dict[str, Mapping[str, Array]] = {}
        self.lent: list[tuple[str, str, Array, Array]] = []
        self.mappings: list[tuple[str, list[str], Mapping[str, Array]]] = []
        self.windows: list[AbstractContextManager[Any]] = []
        self.switched: frozenset[str] = frozenset()

    @cached_property
    def declared(self) -> Declared:
        return Declared(self._model)

    @cached_property
    def _data(self) -> tuple[Array, Array]:
        """Inputs and targets of all samples."""
        assert self._job.data is not None
        return self._job.data.arrays(self._model)

    @property
    def _model(self) -> ModelSpec:
        assert self._job.model is not None
        return self._job.model

    def replica(self, options: Options = (), named: str | None = None) -> Replica:
        """The replica with these options, built if needed; it replaces a replica with other options. named: build this
        model of Adapter.named_models instead of the Job's.
        """
        if self._replica is None or (options, named) != self._built_with:
            self._replica = None  # memory may not suffice for two
            initial = {} if named else self._job.initial(self._rank)
            self._replica = self._built(named or self._model, initial, options)
            self._built_with = options, named
        return self._replica

    def renew(self) -> None:
        """Build the replica again from the same values."""
        self._replica = None
        self.replica()

    def resume(self, name: str) -> None:
        """Build another replica from other values and load the saved state."""
        self._replica = self._built(self._model, self._job.initial_of_resumed(self._rank), ())
        self._built_with = (), None
        state = {key: array.copy() for key, array in self.saved[name].items()}
        self._lend("load_state", state)
        self.extra("load_state")(state)

    def _built(self, model: ModelSpec | str, initial: dict[str, Array], options: Options) -> Replica:
        make = offered(self._facets.make_replica, "make_replica")
        self._lend("make_replica", initial)
        try:
            replica: Replica = make(model, initial, self._job.optimizer, dict(options))
        except Exception as error:
            error.add_note(MAKING)
            raise
        return replica

    def _lend(self, call: str, arrays: Mapping[str, Array]) -> None:
        """Copy the arrays, to detect later changes; not those of a large model, to save memory."""
        if sum(array.nbytes for array in arrays.values()) <= _FEW_BYTES:
            self.lent += [(call, name, array.copy(), array) for name, array in arrays.items()]
            self.mappings.append((call, list(arrays), arrays))

    def changed(self) -> list[list[str]]:
        """The lent arguments that have changed: the call and the array's name, or "" if a mapping's names have changed."""
        names = [[call, ""] for call, before, now in self.mappings if before != list(now)]
        return names + [[call, name] for call, name, before, now in self.lent if before.tobytes() != now.tobytes()]

    def extra(self, method: str) -> Any:
        """A method that replicas may lack: one of ddpcheck.contract.optional_methods, or of a promise."""
        return offered_method(self.replica(), method)

    def batch(
        self, samples: Sequence[int], branches: tuple[str, ...] = (), weights: Sequence[float] | None = None
    ) -> Batch:
        inputs, targets = self._data
        rows = np.array(samples, np.intp)
        weighing = None if weights is None else np.array(weights, self._model.dtype)
        return Batch(inputs[rows], targets[rows], branches, weighing)

    def take_back(self, batch: Batch) -> None:
        """Overwrite the batch's arrays, as a data loader does when it reuses its buffers."""
        for array in arrays_of(batch).values():
            poison(array)


def arrays_of(batch: Batch) -> dict[str, Array]:
    """The arrays of a batch, by name."""
    held = {"inputs": batch.inputs, "targets": batch.targets}
    return held if batch.weights is None else held | {"weights": batch.weights}
