"""What goes wrong with large tensors only."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.values import Array

from ..base import Counting, PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, giving

BUCKET_BYTES = 4 << 20
PIECE = 1 << 16
TRIALS = 6


@fault("optimizer-steps-first-piece", "check_optimizer_steps_every_element_of_large_tensors")
class FirstPiece(PlainReplica):
    """The optimizer works on large tensors piece by piece, and its loop ends after the first piece."""

    def step(self) -> None:
        flat = [array.reshape(-1) for array in self.network.parameters.values()]
        left = [array[PIECE:].copy() for array in flat]
        super().step()
        for array, rest in zip(flat, left, strict=True):
            array[PIECE:] = rest


@fault(
    "large-ones-shared-from-rank-0",
    "check_optimizer_steps_every_element_of_large_tensors",
    cause="not-updated",
    checkpoint=False,
)
class LargeOnesFromRankZero(PlainReplica):
    """Every rank steps its share of the parameters; large ones are then shared from rank 0, whoever has stepped them."""

    def step(self) -> None:
        parameters, shown = self.network.parameters, self._shown()
        owners = {name: number % self.world for number, name in enumerate(parameters)}
        self.optimizer.step({name: shown[name] for name in shown if owners[name] == self.rank})
        for name, parameter in parameters.items():
            parameter[...] = self.comm.broadcast(parameter, 0 if parameter.size > PIECE else owners[name])


@fault(
    "way-kept-after-trials-forgets-a-bucket",
    "check_multi_megabyte_gradients_are_exact_in_every_backward",
    cause="not-reduced",
)
class KeptWay(Counting):
    """With more than one bucket, ways are tried over the first backwards; the one that is kept reduces the first bucket only."""

    def reduce(self, name: str, gradient: Array) -> Array:
        several = sum(array.nbytes for array in self.network.parameters.values()) > BUCKET_BYTES
        reduced = super().reduce(name, gradient)
        return gradient if several and self.backwards > TRIALS and name == self.network.learned[-1] else reduced


STEP = "check_optimizer_steps_every_element_of_large_tensors"


@fault("large-ones-keep-the-last-micro-batch", STEP, cause="last-micro-batch-only")
class LargeWindowsLost(PlainReplica):
    """Large gradients are written to a bucket of their own, where every micro-batch overwrites the one before."""

    def backward(self, batch: Batch) -> float:
        self.local = {name: gradient for name, gradient in self.local.items() if gradient.size <= PIECE}
        return super().backward(batch)


@fault("clip-scales-first-piece", STEP, cause="not-clipped")
class ClipsFirstPiece(PlainReplica):
    """Clipping measures all of a large gradient, and scales its first piece."""

    def scale(self, factor: float) -> None:
        rest = {name: gradient.reshape(-1)[PIECE:] for name, gradient in self.synced.items()}
        super().scale(factor)
        for name, gradient in self.synced.items():
            gradient.reshape(-1)[PIECE:] = rest[name]


@fault("large-momentum-not-loaded", STEP, cause="optimizer-state-lost")
class LargeMomentumLost(PlainReplica):
    """A checkpoint is read in records of a fixed size: what is larger keeps the zeros that it was made with."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        read = {
            name: np.zeros_like(value) if name.startswith("optimizer.") and value.size > PIECE else value
            for name, value in state.items()
        }
        super().load_state(read)


@giving
def pieces_overlap_by_one(gradient: Gradient, mean: Array) -> Array:
    """The first element of each piece but the first is divided twice."""
    mean.reshape(-1)[PIECE::PIECE] /= gradient.world
    return mean


# fmt: off
table(
    globals(),
    Fault("pieces-overlap-by-one", where=always, effect=pieces_overlap_by_one,
          caught_by="check_gradients_are_the_mean_of_local_gradients",
          cause="seams-wrong"),
)
# fmt: on
