"""Judges whether ranks have sent too much: each of them, or all together.

The total traffic of correct algorithms for an all-reduce of N bytes among W ranks is 2 (W - 1) N for rings, trees, and
halving and doubling (Rabenseifner). If W is not a power of two, the latter first folds the W - P ranks beyond the
largest power P, by an exchange of halves at N / 2 more for each: at most an eighth of the whole, with W = 3 or 7. A
reduce-scatter needs half of that. It may be an all-reduce for each rank's share (Gloo, with the headers of all of
them), or a reduction to one rank that scatters its result (Open MPI). Gathering the arrays at one rank, which sends the
result to the others, also takes 2 (W - 1) N in all, but (W - 1) N from one rank. In trees, halving and doubling no rank
sends more than log2 W N, rounded up: less from four ranks on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.processes import OF_MORE_SENT
from ddpcheck.hypotheses.traffic import MoreSent
from ddpcheck.verdict import Diagnosis, Finding

CHANGE = 1.02
"""Headers, rounded chunks and the like may add this share, and 4 KiB for each rank."""
HEADERS = 4096
_IN_ALL = {"all_reduce": 1.25, "reduce_scatter": 2.0, "all_gather": 1.0}


@dataclass(frozen=True, slots=True)
class Demand:
    """An operation of `kind` on `size` bytes per rank among `ranks`; `what` names it. each: no rank sends more than its
    share.
    """

    kind: str
    size: int
    ranks: Sequence[int]
    what: str
    each: bool

    @property
    def share(self) -> float:
        """The least bytes that each rank must send; if shares may differ, the average."""
        others, world = len(self.ranks) - 1, len(self.ranks)
        times = {
            "all_reduce": 2 * others / world,
            "reduce_scatter": others / world,
            "all_gather": others,
            "broadcast": others / world,
            "send_recv": 1 / world,
        }
        return times[self.kind] * self.size

    @property
    def parts(self) -> int:
        """The number of collectives, each with its headers, that a correct algorithm may use."""
        return len(self.ranks) if self.kind == "reduce_scatter" else 1

    @property
    def least(self) -> float:
        """The least bytes in total."""
        return self.share * len(self.ranks)

    @property
    def cap(self) -> float | None:
        """The most that one rank sends in a correct algorithm; None if there is no limit."""
        if self.each:
            return self.share
        world = len(self.ranks)
        return (world - 1).bit_length() * self.size if self.kind == "all_reduce" and world > 3 else None


def sends_no_more(sent: Sequence[int], demand: Demand, note: str) -> None:
    """Raise a Finding if these bytes, by rank, are more than needed."""
    most, total, ranks = max(sent), sum(sent), demand.ranks
    details = [f"rank {rank} sent {count:,} bytes" for rank, count in zip(ranks, sent, strict=True)]
    if demand.cap is not None and most > CHANGE * demand.cap + HEADERS * len(ranks):
        headline = (
            f"rank {ranks[sent.index(most)]} sent {most:,} bytes, but needs no more than {demand.cap:,.0f} for its "
            f"{demand.size:,} bytes among {len(ranks)} ranks"
        )
    elif total > CHANGE * _IN_ALL[demand.kind] * demand.least + HEADERS * len(ranks) * demand.parts:
        headline = (
            f"the {len(ranks)} ranks sent {total:,} bytes in all, but need no more than {demand.least:,.0f} for "
            f"{demand.size:,} bytes each"
        )
    else:
        return
    raise Finding(
        Diagnosis(
            f"{demand.what}: {headline}",
            first_cause(OF_MORE_SENT, MoreSent(sent, demand.size, demand.share)),
            "how much of the array each step sends, and in which dtype",
            (*details, note) if note else tuple(details),
        )
    )
