"""The all-reduce algorithms of formulas.py as lists of messages, for the simulation or other programs.

A vector is cut into `chunks` equal parts. A round is a set of simultaneous messages. A rank begins its part of a round
when its part of the previous round is over, and does not wait for other ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Transfer:
    """`source` sends its chunks start to stop to `dest`, which adds them to its own, or replaces its own by them."""

    source: int
    dest: int
    start: int
    stop: int
    reduces: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """An all-reduce of `world_size` ranks."""

    world_size: int
    chunks: int
    rounds: tuple[tuple[Transfer, ...], ...]

    def placed(self, hosts: Sequence[int]) -> Schedule:
        """The schedule with rank i on host hosts[i]."""
        rounds = tuple(
            tuple(replace(each, source=hosts[each.source], dest=hosts[each.dest]) for each in transfers)
            for transfers in self.rounds
        )
        return replace(self, rounds=rounds)


def ring(p: int) -> Schedule:
    """Reduce-scatter round the ring, then all-gather."""
    rounds = [
        tuple(_chunk(rank, (rank + 1) % p, (rank - i) % p, reduces=True) for rank in range(p)) for i in range(p - 1)
    ]
    rounds += [
        tuple(_chunk(rank, (rank + 1) % p, (rank + 1 - i) % p, reduces=False) for rank in range(p))
        for i in range(p - 1)
    ]
    return Schedule(p, p, tuple(rounds))


def recursive_doubling(p: int) -> Schedule:
    """Exchange everything with the rank at distance 1, 2, 4, ..."""
    q = 1 << (p.bit_length() - 1)
    core = [tuple(Transfer(rank, rank ^ d, 0, 1, True) for rank in range(q)) for d in _powers_below(q)]
    return Schedule(p, 1, _folded(p, q, 1, core))


def rabenseifner(p: int) -> Schedule:
    """Recursive halving, which leaves each rank one finished chunk, then recursive doubling of finished chunks."""
    q = 1 << (p.bit_length() - 1)
    distances = list(_powers_below(q))
    halving = [
        tuple(Transfer(rank, rank ^ d, *_block(rank ^ d, d), reduces=True) for rank in range(q))
        for d in reversed(distances)
    ]
    doubling = [
        tuple(Transfer(rank, rank ^ d, *_block(rank, d), reduces=False) for rank in range(q)) for d in distances
    ]
    return Schedule(p, q, _folded(p, q, q, halving + doubling))


def tree(p: int) -> Schedule:
    """Up a binomial tree, and down again."""
    pairs = [[(rank, rank - d) for rank in range(d, p, 2 * d)] for d in _powers_below(p)]
    up = [tuple(Transfer(child, parent, 0, 1, True) for child, parent in level) for level in pairs]
    down = [tuple(Transfer(parent, child, 0, 1, False) for child, parent in level) for level in reversed(pairs)]
    return Schedule(p, 1, tuple(up + down))


def naive(p: int) -> Schedule:
    """All to rank 0, one after the other, and back."""
    up = [(Transfer(rank, 0, 0, 1, True),) for rank in range(1, p)]
    down = [(Transfer(0, rank, 0, 1, False),) for rank in range(1, p)]
    return Schedule(p, 1, tuple(up + down))


SCHEDULES: dict[str, Callable[[int], Schedule]] = {
    "ring": ring,
    "recursive doubling": recursive_doubling,
    "Rabenseifner": rabenseifner,
    "tree": tree,
    "naive": naive,
}
"""By the names of formulas.FORMULAS["all_reduce"]."""


def _chunk(source: int, dest: int, chunk: int, *, reduces: bool) -> Transfer:
    return Transfer(source, dest, chunk, chunk + 1, reduces)


def _powers_below(p: int) -> Iterator[int]:
    distance = 1
    while distance < p:
        yield distance
        distance *= 2


def _block(rank: int, size: int) -> tuple[int, int]:
    """The aligned block of `size` chunks that contains chunk `rank`."""
    start = rank // size * size
    return start, start + size


def _folded(p: int, q: int, chunks: int, core: list[tuple[Transfer, ...]]) -> tuple[tuple[Transfer, ...], ...]:
    """`core` among the first q ranks; the others first send them their vectors, and get the result at the end."""
    rest = range(q, p)
    before = [tuple(Transfer(rank, rank - q, 0, chunks, True) for rank in rest)] if rest else []
    after = [tuple(Transfer(rank - q, rank, 0, chunks, False) for rank in rest)] if rest else []
    return tuple(before + core + after)
