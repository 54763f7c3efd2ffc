"""A Job: the work of all ranks. Immutable, framework-neutral, and a file that can be replayed.

A Job holds declarations and seeds, never arrays: ranks and oracle generate the same numbers from them
(seeded_values.py). Every rank gets different numbers, unless a check decides otherwise. Ranks run the operations in
order. The values that an operation yields are stored in the Trace at the operation's position.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from . import operations
from .models.spec import ModelSpec
from .operations import *  # noqa: F403  # by its __all__: a Job is built from operations
from .operations import DataSpec, Operation, OptimizerSpec, Start
from .operations.accumulation_windows import windows_that_do_not_fit
from .operations.validation import misfits
from .seeded_values import Array, Kind, key_of
from .storage.dataclass_json import from_plain, plain, to_plain

__all__ = ["Job"]
__all__ += operations.__all__

_DEFAULT = OptimizerSpec()
MOST_RANKS = 1024
"""The largest world size. Ranks are processes of one machine, or attached, and the driver connects to each."""


@plain
@dataclass(frozen=True, slots=True)
class Job:
    """Operations for `world_size` ranks, with their model, optimizer and data.

    Rank r builds its model from its own initial values (seed and rank), so that a missing broadcast shows; replicas
    must then hold those of rank 0. start: the start of the ranks for this Job; None uses running ranks. over_tcp: run
    only on ranks whose launcher made them send over TCP, where the system counts bytes, even on one host. ValueError if
    the operations do not fit the world size or the data.
    """

    kind: ClassVar[str] = "job"
    world_size: int
    operations: tuple[Operation, ...]
    model: ModelSpec | None = None
    optimizer: OptimizerSpec = _DEFAULT
    data: DataSpec | None = None
    seed: int = 0
    start: Start | None = None
    over_tcp: bool = False

    def __post_init__(self) -> None:
        problems = [
            f"operation {i} ({op.kind}): {text}" for i, op in enumerate(self.operations) for text in misfits(self, op)
        ]
        problems += windows_that_do_not_fit(self.operations)
        if self.start is not None and (misfit := self.start.misfit(self.world_size)):
            problems.append(misfit)
        if problems:
            raise ValueError("this Job cannot run: " + "; ".join(problems))

    def initial(self, rank: int) -> dict[str, Array]:
        """The parameters and buffers with which `rank` builds its model."""
        assert self.model is not None
        kind: Kind = self.data.values if self.data else "lattice"
        return self.model.initial(key_of(self.seed, rank), kind)

    def initial_of_resumed(self, rank: int) -> dict[str, Array]:
        """The parameters and buffers with which `rank` builds a new replica for a Resume."""
        assert self.model is not None
        return self.model.initial(key_of(self.seed, rank, 1), "real")

    def of_second(self) -> Job:
        """This Job for the second of two replicas: other initial values, the same data."""
        return replace(self, seed=key_of(self.seed, 1))

    def to_plain(self) -> dict[str, Any]:
        made: dict[str, Any] = to_plain(self)
        return made

    @staticmethod
    def from_plain(data: Any) -> Job:
        """Inverse of to_plain. ValueError if the data is not a Job."""
        job = from_plain(data)
        if not isinstance(job, Job):
            raise ValueError(f"not a Job, but {type(job).__name__}")
        return job
