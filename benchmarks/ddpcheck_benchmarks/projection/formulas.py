"""Times of collectives by their algorithms: alpha seconds a message, beta seconds a byte, gamma seconds a reduced byte.

The model is Hockney's (Parallel Computing 20(3), 1994): a message of m bytes takes alpha + m beta, every rank sends and
receives one message at a time, both at once, and links do not disturb each other. Bytes are S of nccl-tests: one
rank's vector, but the whole result of all_gather, and the whole input of reduce_scatter.

[MPICH] is Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA 19(1),
2005, whose formulas also stand in comments above the algorithms in MPICH's sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """alpha: seconds a message; beta: seconds a byte; gamma: seconds to reduce a byte."""

    alpha: float
    beta: float
    gamma: float = 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """The longest chain of work in one collective, and the number of ranks that work at the same time.

    `steps` messages and `moved` bytes one after the other, `reduced` bytes between them. `busy` ranks share the cores
    of a host, if they are on one: ranks that wait do not count, unless they spin.
    """

    steps: float
    moved: float
    reduced: float
    busy: float

    def seconds(self, link: Link) -> float:
        return self.steps * link.alpha + self.moved * link.beta + self.reduced * link.gamma

    def contention(self, cores: int) -> float:
        """The factor by which ranks on one host slow each other down: k of the fit."""
        return max(1.0, self.busy / cores)


Formula = Callable[[int, float], Cost]
"""From the number of ranks (2 or more) and of bytes."""


def ring_all_reduce(p: int, n: float) -> Cost:
    """2(p-1) alpha + 2(p-1)/p n beta + (p-1)/p n gamma. Patarasuk and Yuan, JPDC 69(2), 2009; [MPICH]."""
    return Cost(2 * (p - 1), 2 * (p - 1) / p * n, (p - 1) / p * n, p)


def recursive_doubling(p: int, n: float) -> Cost:
    """Lg p (alpha + n beta + n gamma) [MPICH]. Other p: the ranks above a power of two first send theirs to others, and
    get the result at the end: two messages and one reduction more.
    """  # fmt: skip
    levels, rest = _levels(p)
    return Cost(levels + 2 * rest, (levels + 2 * rest) * n, (levels + rest) * n, p)


def rabenseifner(p: int, n: float) -> Cost:
    """Recursive halving, then doubling: 2 lg p alpha + 2(p-1)/p n beta + (p-1)/p n gamma [MPICH]. Other p: 2 alpha + 2n beta +
    n gamma more, with q = 2^floor(lg p) for p; MPICH's comment says p throughout, which is an upper bound.
    """  # fmt: skip
    levels, rest = _levels(p)
    part = (2**levels - 1) / 2**levels * n
    return Cost(2 * levels + 2 * rest, 2 * part + 2 * rest * n, part + rest * n, p)


def tree_all_reduce(p: int, n: float) -> Cost:
    """Binomial reduce, then broadcast: 2 lg p (alpha + n beta) + lg p n gamma, lg p rounded up [MPICH]."""
    rounds = _rounds(p)
    return Cost(2 * rounds, 2 * rounds * n, rounds * n, 2 * (p - 1) / rounds)


def naive_all_reduce(p: int, n: float) -> Cost:
    """All send to a root, which sends to all: 2(p-1)(alpha + n beta) + (p-1) n gamma. The root is the one chain."""
    return Cost(2 * (p - 1), 2 * (p - 1) * n, (p - 1) * n, 2)


def direct_all_reduce(p: int, n: float) -> Cost:
    """Every rank sends its vector to every other, as for small vectors: (p-1)(alpha + n beta + n gamma)."""
    return Cost(p - 1, (p - 1) * n, (p - 1) * n, p)


def ring_all_gather(p: int, n: float) -> Cost:
    """(p-1) alpha + (p-1)/p n beta, n the whole result [MPICH]."""
    return Cost(p - 1, (p - 1) / p * n, 0, p)


def doubling_all_gather(p: int, n: float) -> Cost:
    """Lg p alpha + (p-1)/p n beta: recursive doubling, or Bruck's algorithm with lg p rounded up [MPICH]."""
    return Cost(_rounds(p), (p - 1) / p * n, 0, p)


def naive_all_gather(p: int, n: float) -> Cost:
    """All send to a root, which sends everything to all: (p-1)(2 alpha + (n/p + n) beta)."""
    return Cost(2 * (p - 1), (p - 1) * (n / p + n), 0, 2)


def ring_reduce_scatter(p: int, n: float) -> Cost:
    """(p-1) alpha + (p-1)/p n (beta + gamma), n the whole input [MPICH]."""
    return Cost(p - 1, (p - 1) / p * n, (p - 1) / p * n, p)


def halving_reduce_scatter(p: int, n: float) -> Cost:
    """Lg p alpha + (p-1)/p n (beta + gamma), by recursive halving; p a power of two, else two messages of n more [MPICH]."""
    levels, rest = _levels(p)
    part = (2**levels - 1) / 2**levels * n
    return Cost(levels + 2 * rest, part + rest * (n + n / p), part + rest * n, p)


def tree_broadcast(p: int, n: float) -> Cost:
    """Down a binomial tree: lg p (alpha + n beta), lg p rounded up [MPICH]."""
    return Cost(_rounds(p), _rounds(p) * n, 0, 2 * (p - 1) / _rounds(p))


def scatter_all_gather_broadcast(p: int, n: float) -> Cost:
    """Van de Geijn's: binomial scatter, then ring all-gather: (lg p + p-1) alpha + 2(p-1)/p n beta [MPICH]."""
    return Cost(_rounds(p) + p - 1, 2 * (p - 1) / p * n, 0, p)


def flat_broadcast(p: int, n: float) -> Cost:
    """The root sends to one after the other: (p-1)(alpha + n beta)."""
    return Cost(p - 1, (p - 1) * n, 0, 2)


def dissemination_barrier(p: int, n: float = 0) -> Cost:
    """Lg p alpha, rounded up: Hensgen, Finkel and Manber, Int. J. of Parallel Programming 17(1), 1988. n is ignored."""
    return Cost(_rounds(p), 0, 0, p)


def central_barrier(p: int, n: float = 0) -> Cost:
    """All send to a root, which answers all: 2(p-1) alpha. n is ignored."""
    return Cost(2 * (p - 1), 0, 0, 2)


def point_to_point(p: int, n: float) -> Cost:
    """Alpha + n beta for any p: Hockney."""
    return Cost(1, n, 0, 2)


FORMULAS: dict[str, dict[str, Formula]] = {
    "all_reduce": {
        "ring": ring_all_reduce,
        "recursive doubling": recursive_doubling,
        "Rabenseifner": rabenseifner,
        "tree": tree_all_reduce,
        "naive": naive_all_reduce,
        "direct": direct_all_reduce,
    },
    "all_gather": {"ring": ring_all_gather, "doubling": doubling_all_gather, "naive": naive_all_gather},
    "reduce_scatter": {"ring": ring_reduce_scatter, "halving": halving_reduce_scatter},
    "broadcast": {"tree": tree_broadcast, "scatter + all-gather": scatter_all_gather_broadcast, "flat": flat_broadcast},
    "barrier": {"dissemination": dissemination_barrier, "central": central_barrier},
    "send_recv": {"point to point": point_to_point},
}
"""By collective, as named in results, and by algorithm."""


def lower_bound(p: int, n: float, link: Link) -> float:
    """A lower bound in seconds on any all-reduce over point-to-point links.

    Every rank has to send 2(p-1)/p n bytes (Patarasuk and Yuan 2009), to reduce its share of (p-1)/p n, and the last
    value needs lg p messages to reach all. In-network reduction is not bound by it.
    """
    return Cost(_rounds(p), 2 * (p - 1) / p * n, (p - 1) / p * n, p).seconds(link)


def hierarchical(hosts: int, per_host: int, n: float, inside: Link, between: Link) -> float:
    """Reduce-scatter inside each host, a ring over the hosts for each share, all-gather inside; each part by a ring."""
    seconds = 0.0
    if per_host > 1:
        seconds += ring_reduce_scatter(per_host, n).seconds(inside) + ring_all_gather(per_host, n).seconds(inside)
    if hosts > 1:
        # the ranks of a host share its link: together they send n / per_host each, at 1 / per_host of its bandwidth
        shared = Link(between.alpha, between.beta * per_host, between.gamma)
        seconds += ring_all_reduce(hosts, n / per_host).seconds(shared)
    return seconds


def _levels(p: int) -> tuple[int, bool]:
    """The floor of lg p, and whether p is more than that power of two."""
    levels = p.bit_length() - 1
    return levels, p != 2**levels


def _rounds(p: int) -> int:
    """The ceiling of lg p."""
    return (p - 1).bit_length()
