"""Messages between ranks beside gradients, through the one facet that every trainer needs: metrics.

A mean over ranks of numbers that are zero on all ranks but one gives that rank's number. So every implementation that
can aggregate metrics can also send the samples that each rank used, and failures of ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..contract.adapter import AggregateMetrics
from ..counted_nouns import ranks_named
from ..seeded_values import Array

_PIECE = 20
"""Bits of a fingerprint in one number: few enough for an implementation that aggregates in float32."""

_BEAT = 0.5


class TrainingFailed(Exception):
    """The run cannot continue; the message names the reason and the rank."""


class OtherRankFailed(TrainingFailed):
    """Another rank has failed, and reports its error itself."""


@dataclass(frozen=True)
class RankExchange:
    """All ranks, as seen from one of them."""

    rank: int
    size: int
    aggregate: AggregateMetrics

    def gather(self, numbers: Sequence[int]) -> npt.NDArray[np.int64]:
        """The integers of all ranks, equally many on each: row r holds rank r's."""
        if self.size == 1:
            return np.array([numbers], np.int64)
        own = {
            f"{rank}.{position}": float(number) if rank == self.rank else 0.0
            for rank in range(self.size)
            for position, number in enumerate(numbers)
        }
        means = self.aggregate(own, 1) if own else {}
        return np.array(
            [
                [round(means[f"{rank}.{position}"] * self.size) for position in range(len(numbers))]
                for rank in range(self.size)
            ],
            np.int64,
        )

    @contextmanager
    def together(self, doing: str) -> Iterator[None]:
        """If one rank fails, all stop: the failing rank raises its own error, the others OtherRankFailed.

        Otherwise the other ranks would wait in their next all-reduce. The block must not communicate; its end is a
        barrier.
        """
        failure: Exception | None = None
        try:
            yield
        except Exception as error:  # every kind: raised again below, after the others are told
            failure = error
        failed = np.flatnonzero(self.gather([failure is not None])[:, 0]).tolist()
        if failure is not None:
            raise failure
        if failed:
            raise OtherRankFailed(f"{ranks_named(failed)} failed while {doing}; see its own message")

    def from_rank_zero(self, answer: Callable[[], int]) -> int:
        """Rank 0's answer on all ranks, after any time. Meanwhile the ranks meet regularly.

        A communicator gives up on a rank that is silent for long, and MPICH's mpirun ends all ranks when the first has
        left. So the others can neither wait without messages nor leave. OtherRankFailed if rank 0 cannot answer.
        """
        if self.size == 1:
            return answer()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(answer) if self.rank == 0 else None
            done = False
            while not done:
                ready = asked is not None and bool(wait([asked], _BEAT).done)
                done = bool(self.gather([ready])[0, 0])
        with self.together("comparing the result"):
            own = asked.result() if asked is not None else 0
        return int(self.gather([own])[0, 0])

    def differing(self, arrays: Mapping[str, Array]) -> list[int]:
        """The ranks whose arrays differ from rank 0's in any bit."""
        digest = hashlib.blake2b(digest_size=16)
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        fingerprint = int.from_bytes(digest.digest()[:15], "big")
        pieces = self.gather([fingerprint >> shift & (1 << _PIECE) - 1 for shift in range(0, 120, _PIECE)])
        return [rank for rank in range(self.size) if (pieces[rank] != pieces[0]).any()]
