"""What a gradient was made of, and what it would be if something specific had gone wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from ..diagnosis import Evidence
from ..values import Array
from .sample_weights import SampleWeights
from .terms_gone_wrong import Terms

_SEARCHED = 200
"""Elements of the largest flat buffer that is looked through."""

_LEFT_BEHIND = (
    "earlier backwards were not found wrong: something that one of them has left behind may go into it, a residual, a buffer "
    "or a layout made anew"
)

_ALONE = "the others' never arrived here, or nobody waited for them"

_STILL_ZERO = "it is zero, as this rank's own is: what others sent never came here, or is left out where one has none"
_KEPT = "what every rank had gathered inside no_sync before zero_grad went in, too: zero_grad leaves it"
_ADDED_TO_THE_OWN = (
    "this rank's own gradient is in it once more: what was reduced is added to it, and should replace it"
)

_OLD = "its gradient of an earlier backward: a buffer that is not cleared"
_WITHOUT_SAMPLES = (
    "ranks without samples are left out of the mean, or ranks are weighted by batch sizes: all should count equally"
)
_RANKS = 6
"""Of so many ranks all subsets are tried."""


@dataclass(frozen=True, slots=True)
class Contributions:
    """What a gradient was made of, for a diagnosis; arrays have the ranks as first axis.

    own: each rank's own, all since zero_grad. first, last: each rank's own of the first and the last backward. before: what
    was shown after the backward before. backwards: how many since zero_grad. counts: the ranks' batch sizes. inside: whether
    the last one was inside no_sync. weighted: whether batch sizes are promised to count. others: as own, of every gradient.
    shares: the parts of the layers that share the parameter, if some do. earlier: each rank's own when it last had one,
    before the last backward. long_before: each rank's own of the backwards before the last but one, the latest first. passed:
    what own would be if a layer computed something else. weighing: the samples' weights, if they have some. terms: the loss's
    auxiliary terms, if it has some.
    """

    own: Array
    first: Array
    last: Array
    before: Array | None
    backwards: int
    counts: Array
    inside: bool
    weighted: bool
    others: Mapping[str, Array] = field(default_factory=dict)
    shares: Callable[[], Mapping[str, Array]] | None = None
    earlier: Array | None = None
    passed: Callable[[], Iterator[tuple[str, Array]]] | None = None
    weighing: SampleWeights | None = None
    terms: Terms | None = None
    long_before: Sequence[Array] = ()

    def evidence(self, expected: Array, rank: int) -> Evidence:
        known = (
            *(self.terms.gone_wrong(self.own, expected, rank) if self.terms else ()),
            *(self.weighing.gone_wrong(self.own, self.last) if self.weighing else ()),
            *(self._not_cleared() if len(self._unused()) < len(self.own) else ()),
            *self._alternatives(expected, rank),
            *self._shares(rank),
            *self._passed(rank),
            *self._mixtures(),
            *self._stale(),
        )
        if not self.inside:
            unused = self._unused()
            doubt = f"; or rank {_listed(unused)}, whose gradient is zero here, is left out of the mean"
            alone = 0 < len(unused) == len(self.own) - 1
            doubt = doubt * alone + self._kept(expected) + (self.terms.doubt(self.own) if self.terms else "")
            added = [(_ADDED_TO_THE_OWN, expected + self.own[rank])] * (len(self.own) > 1)
            known = (*known, *self._left_out(unused, rank), *added)
            left = _LEFT_BEHIND if self.before is not None else ""
            less = ", or by the micro-batches, which are as many" * (self.backwards == len(self.own))
            return Evidence(
                len(self.own), self.own[rank], known, doubt=doubt, less=less, otherwise=left, parts=self.own
            )
        size = len(self.own)
        scaled = (
            (
                f"the loss was multiplied by the world size: {size} x too large before anything is reduced",
                size * expected,
            ),
            (f"the loss was divided by the world size: {size} x too small before anything is reduced", expected / size),
        )
        return Evidence(1, self.own[rank], (*known, *scaled))

    def _kept(self, expected: Array) -> str:
        """What else makes a gradient of two ranks too large by their number, if the backward before had an equal one."""
        same = len(self.own) == 2 and self.earlier is not None and np.allclose(self.earlier.mean(axis=0), expected)
        return f"; or {_KEPT}" * same

    def _shares(self, rank: int) -> Iterator[tuple[str, Array]]:
        """What came of it if one of the layers that share the parameter was forgotten, or all but one."""
        shares = self.shares() if self.shares else {}
        for name, array in shares.items():
            part = array[rank] if self.inside else array.mean(axis=0)
            own = self.own[rank] if self.inside else self.own.mean(axis=0)
            layers = ", ".join(shares)
            yield f"it is the part of {name} alone, but is shared by {layers}: the last one's part replaced it", part
            yield f"it is shared by {layers}, and the part of {name} is missing", own - part
            if not self.inside and len(array) > 1:
                when = "the gradient was reduced before that part was added"
                yield (
                    f"it is shared by {layers}, and the part of {name} is this rank's own: {when}",
                    own - part + array[rank],
                )

    def _mixtures(self) -> Iterator[tuple[str, Array]]:
        """What came of it if a rank's part is another parameter's gradient."""
        why = "gradients of different parameters are taken for one another, by orders or layouts that differ"
        for name, other in self.others.items():
            if not other.any() or other is self.own or other.size != self.own.size or self.inside:
                continue
            other = other.reshape(self.own.shape)
            yield f"it is the gradient of {name}: {why}", other.mean(axis=0)
            for rank in range(len(other)):
                mixed = self.own.copy()
                mixed[rank] = other[rank]
                if not mixed.any():  # zeros come of much else
                    continue
                yield f"rank {rank}'s part of it is that of {name}: {why}", mixed.mean(axis=0)
            if self.backwards > 1:
                yield f"the gradient of {name} is added to it, too: {why}", (self.own + other).mean(axis=0)
        yield from self._pieces(why)

    def _pieces(self, why: str) -> Iterator[tuple[str, Array]]:
        """What came of it if a rank's part is another piece of the flat buffer of all gradients."""
        size = self.own[0].size
        there = {name: other.reshape(len(other), -1) for name, other in self.others.items()}
        if self.inside or size < 2 or not there or sum(other.shape[1] for other in there.values()) > _SEARCHED:
            return
        for rank in range(len(self.own)):
            backwards = list(there)[::-1]
            layers = dict.fromkeys(name.rpartition(".")[0] for name in backwards)
            for first in ("", *layers):  # what a rank did not use once may come first
                order = sorted(backwards, key=lambda name: name.rpartition(".")[0] != first)
                flat = np.concatenate([there[name][rank] for name in order])
                for start in range(flat.size - size + 1):
                    mixed = self.own.copy()
                    mixed[rank] = flat[start : start + size].reshape(self.own.shape[1:])
                    yield f"rank {rank}'s part of it is another piece of a flat buffer: {why}", mixed.mean(axis=0)
        for order in (list(there), list(there)[::-1], sorted(there)):
            flat = np.concatenate([there[name].mean(axis=0) for name in order])
            for start in range(flat.size - size + 1):
                piece = flat[start : start + size].reshape(self.own.shape[1:])
                yield "it is another piece of the flat buffer, which is packed and unpacked in different orders", piece

    def _passed(self, rank: int) -> Iterator[tuple[str, Array]]:
        for why, array in self.passed() if self.passed else ():
            yield why, array[rank] if self.inside else array.mean(axis=0)

    def _unused(self) -> Array:
        """The ranks whose own gradient is zero."""
        return np.flatnonzero(~self.own.reshape(len(self.own), -1).any(axis=1))

    def _left_out(self, unused: Array, rank: int) -> Iterator[tuple[str, Array]]:
        """What came of it if a rank's part is missing, in the sum or in the number of ranks, too."""
        if 0 < len(unused) < len(self.own):
            rest = np.delete(self.own, unused, axis=0).mean(axis=0)
            yield f"it is the mean without rank {_listed(unused)}, whose gradient is zero here", rest
        size = len(self.own)
        for left in range(min(size, _RANKS) - 1, 1, -1):
            for ranks in map(list, combinations(range(size), left)):
                others = _listed(np.delete(np.arange(size), ranks))
                yield f"the part of rank {others} is missing, as if it were zero", self.own[ranks].sum(axis=0) / size
                yield f"it is the mean of rank {_listed(np.array(ranks))} only", self.own[ranks].mean(axis=0)
        yield from self._grouped()
        for other in range(size if size > 1 else 0):
            whose = "this rank's own" if other == rank else f"rank {other}'s"
            yield f"only {whose} part of it is there, divided by the world size: {_ALONE}", self.own[other] / size

    def _grouped(self) -> Iterator[tuple[str, Array]]:
        """What came of it if groups of ranks in a row, as those of one host, weigh equally, of whatever size."""
        size = len(self.own)
        for length in range(2, size):
            if size % length:
                for cut in {*range(length, size, length)}, {*range(size % length, size, length)}:
                    groups = [list(map(int, group)) for group in np.split(np.arange(size), sorted(cut))]
                    named = " and ".join(f"rank {_listed(np.array(group))}" for group in groups)
                    why = "groups of ranks weigh equally, though they are of different sizes"
                    means = [self.own[group].mean(axis=0) for group in groups]
                    yield f"it is the mean of the means of {named}: {why}", np.mean(means, axis=0)

    def _not_cleared(self) -> Iterator[tuple[str, Array]]:
        """What came of it if a rank that has no gradient sent what it had last."""
        unused = self._unused()
        if self.inside or not len(unused):
            return
        who = f"rank {_listed(unused)}, which did not use it,"
        array = self.own.copy()
        if self.before is not None:
            array[unused] = self.before[unused]
            sent = "sent what the one before left, the mean over all ranks: a buffer is not cleared, or zero_grad leaves it there"
            yield f"{who} {sent}", array.mean(axis=0)
        if self.earlier is not None:
            array[unused] = self.earlier[unused]
            yield f"{who} sent {_OLD}", array.mean(axis=0)
        for back, own in enumerate(self.long_before, start=2):
            array[unused] = own[unused]
            gone = f"its gradient of {back} backwards before: one of several buffers in turn that is not cleared"
            yield f"{who} sent {gone}", array.mean(axis=0)

    def _stale(self) -> Iterator[tuple[str, Array]]:
        """What came of it if a rank sent what it had before."""
        yield from self._not_cleared()
        if self.earlier is None or self.inside:
            return
        for rank in range(len(self.own)):
            array = self.own.copy()
            array[rank] = self.earlier[rank]
            yield f"rank {rank} sent {_OLD}", array.mean(axis=0)

    def _alternatives(self, expected: Array, rank: int) -> Iterator[tuple[str, Array]]:
        """What the gradient would be if something specific had gone wrong."""
        if not self.inside and self.own[rank].size > 1 and not self.own[rank].any() and expected.any():
            yield _STILL_ZERO, np.zeros_like(expected)
        if self.before is not None:
            before = self.before[rank]
            if self.backwards:
                yield "it is the gradient of the backward before: stale, reduced too early or one step late", before
            yield "it also holds the gradient of before: not reset by zero_grad, or counted twice", expected + before
            size = len(self.own)
            if self.backwards > 1 and size > 1 and not self.inside:
                again = "what earlier backwards had reduced went into the reduction of the last one once more"
                yield f"{again}: it counts {size} times, once for each rank", expected + before * (size - 1)
                yield f"{again}, from one rank only: it counts 1/{size}", expected - before * ((size - 1) / size)
            for left in range(1, 1 if self.inside else size):
                kept = f"{left} of {size} ranks put the gradient of before in once more: zero_grad leaves it there"
                yield kept, expected + before * (left / size)
        if self.earlier is not None and self.backwards == 1 and not self.inside:
            yield _KEPT, expected + self.earlier.mean(axis=0)
        if self.backwards > 1:
            last = self.last[rank] if self.inside else self.last.mean(axis=0)
            yield "it is the last micro-batch only: what was accumulated before is lost", last
            first = self.first[rank] if self.inside else self.first.mean(axis=0)
            yield "the first micro-batch is missing: what was accumulated before is lost", expected - first
            earlier = expected - (self.last[rank] if self.inside else self.last.mean(axis=0))
            yield "the last micro-batch is missing: it was taken before that one's gradient was there", earlier
            yield "it was divided by the number of micro-batches", expected / self.backwards
            if not self.inside:
                own = self.own[rank] - self.last[rank]
                yield (
                    "what was accumulated before the last micro-batch is this rank's own: only that was reduced",
                    own + last,
                )
        if self.inside:
            yield "it is the mean over all ranks: synchronised, though inside no_sync", self.own.mean(axis=0)
        elif self.weighted:
            yield "it is the mean with equal weights, but should be weighted by batch sizes", self.own.mean(axis=0)
        else:
            share = self.counts / max(self.counts.sum(), 1)
            alike = len({*self.counts[self.counts > 0]}) == 1
            words = _WITHOUT_SAMPLES if alike else "it is weighted by batch sizes, but ranks should have equal weights"
            yield words, np.tensordot(share, self.own, 1)
        for other in range(len(self.own)):
            if other != rank:
                yield f"it is rank {other}'s own local gradient: one rank's value, not all ranks'", self.own[other]
        if not self.inside:
            for words, combined in (("largest", self.own.max(axis=0)), ("smallest", self.own.min(axis=0))):
                if combined.any():  # zeros come of much else
                    yield f"each element is the {words} of all ranks', but should be their mean", combined
            product = self.own.prod(axis=0)
            if product.any():
                yield "each element is the product of all ranks', but should be their mean", product


def _listed(ranks: Array) -> str:
    return ", ".join(map(str, ranks))
