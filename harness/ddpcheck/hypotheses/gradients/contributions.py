"""The contributions to a gradient, and the gradient that each hypothesis gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from ...causes import Cause
from ...causes import gradients as causes
from ...seeded_values import Array
from ..arrays import Evidence
from .auxiliary_terms import Terms
from .sample_weights import SampleWeights

_SEARCHED = 200
"""Elements of the largest flat buffer that is looked through."""

_RANKS = 6
"""Of so many ranks all subsets are tried."""


@dataclass(frozen=True, slots=True)
class Contributions:
    """The contributions to a gradient, for a diagnosis; arrays have the ranks as first axis.

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
    passed: Callable[[], Iterator[tuple[Cause, Array]]] | None = None
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
            alone = 0 < len(unused) == len(self.own) - 1
            doubt = (
                *(causes.UNUSED_RANKS_LEFT_OUT(ranks=_ranks(unused)),) * alone,
                *self._kept(expected),
                *(self.terms.doubt(self.own) if self.terms else ()),
            )
            added = [(causes.ADDED_TO_OWN(), expected + self.own[rank])] * (len(self.own) > 1)
            known = (*known, *self._left_out(unused, rank), *added)
            left = (causes.STATE_LEFT_BEHIND(),) * (self.before is not None)
            less = (causes.DIVIDED_BY_MICRO_BATCHES(count=self.backwards),) * (self.backwards == len(self.own))
            return Evidence(
                len(self.own), self.own[rank], known, doubt=doubt, less=less, otherwise=left, parts=self.own
            )
        size = len(self.own)
        scaled = (
            (causes.LOSS_MULTIPLIED_BY_WORLD_SIZE(world_size=size), size * expected),
            (causes.LOSS_DIVIDED_BY_WORLD_SIZE(world_size=size), expected / size),
        )
        return Evidence(1, self.own[rank], (*known, *scaled))

    def _kept(self, expected: Array) -> tuple[Cause, ...]:
        """Another cause of a factor of 2 at two ranks, if the previous backward had an equal gradient."""
        same = len(self.own) == 2 and self.earlier is not None and np.allclose(self.earlier.mean(axis=0), expected)
        return (causes.ACCUMULATED_SURVIVES_ZERO_GRAD(),) * bool(same)

    def _shares(self, rank: int) -> Iterator[tuple[Cause, Array]]:
        """The gradient if one of the layers that share the parameter was left out, or all but one."""
        shares = self.shares() if self.shares else {}
        for name, array in shares.items():
            part = array[rank] if self.inside else array.mean(axis=0)
            own = self.own[rank] if self.inside else self.own.mean(axis=0)
            layers = tuple(shares)
            yield causes.SHARED_PART_REPLACES(layer=name, layers=layers), part
            yield causes.SHARED_PART_MISSING(layer=name, layers=layers), own - part
            if not self.inside and len(array) > 1:
                yield causes.SHARED_PART_NOT_REDUCED(layer=name, layers=layers), own - part + array[rank]

    def _mixtures(self) -> Iterator[tuple[Cause, Array]]:
        """The gradient if a rank's part is another parameter's gradient."""
        for name, other in self.others.items():
            if not other.any() or other is self.own or other.size != self.own.size or self.inside:
                continue
            other = other.reshape(self.own.shape)
            yield causes.OTHER_PARAMETERS_GRADIENT(parameter=name), other.mean(axis=0)
            for rank in range(len(other)):
                mixed = self.own.copy()
                mixed[rank] = other[rank]
                if not mixed.any():  # zeros come of much else
                    continue
                yield causes.RANK_SENDS_OTHER_PARAMETER(rank=rank, parameter=name), mixed.mean(axis=0)
            if self.backwards > 1:
                yield causes.OTHER_PARAMETER_ADDED(parameter=name), (self.own + other).mean(axis=0)
        yield from self._pieces()

    def _pieces(self) -> Iterator[tuple[Cause, Array]]:
        """The gradient if a rank's part is another piece of the flat buffer of all gradients."""
        size = self.own[0].size
        there = {name: other.reshape(len(other), -1) for name, other in self.others.items()}
        if self.inside or size < 2 or not there or sum(other.shape[1] for other in there.values()) > _SEARCHED:
            return
        for rank in range(len(self.own)):
            backwards = list(there)[::-1]
            layers = dict.fromkeys(name.rpartition(".")[0] for name in backwards)
            for first in ("", *layers):  # a layer that a rank did not use once may come first
                order = sorted(backwards, key=lambda name: name.rpartition(".")[0] != first)
                flat = np.concatenate([there[name][rank] for name in order])
                for start in range(flat.size - size + 1):
                    mixed = self.own.copy()
                    mixed[rank] = flat[start : start + size].reshape(self.own.shape[1:])
                    yield causes.RANK_SENDS_OTHER_PIECE(rank=rank), mixed.mean(axis=0)
        for order in (list(there), list(there)[::-1], sorted(there)):
            flat = np.concatenate([there[name].mean(axis=0) for name in order])
            for start in range(flat.size - size + 1):
                piece = flat[start : start + size].reshape(self.own.shape[1:])
                yield causes.UNPACKED_IN_OTHER_ORDER(), piece

    def _passed(self, rank: int) -> Iterator[tuple[Cause, Array]]:
        for why, array in self.passed() if self.passed else ():
            yield why, array[rank] if self.inside else array.mean(axis=0)

    def _unused(self) -> Array:
        """The ranks whose own gradient is zero."""
        return np.flatnonzero(~self.own.reshape(len(self.own), -1).any(axis=1))

    def _left_out(self, unused: Array, rank: int) -> Iterator[tuple[Cause, Array]]:
        """The gradient if a rank's part is missing in the sum, and perhaps in the divisor."""
        if 0 < len(unused) < len(self.own):
            rest = np.delete(self.own, unused, axis=0).mean(axis=0)
            yield causes.UNUSED_RANKS_LEFT_OUT(ranks=_ranks(unused)), rest
        size = len(self.own)
        for left in range(min(size, _RANKS) - 1, 1, -1):
            for ranks in map(list, combinations(range(size), left)):
                others = _ranks(np.delete(np.arange(size), ranks))
                yield causes.RANKS_MISSING(ranks=others), self.own[ranks].sum(axis=0) / size
                yield causes.MEAN_OF_SOME_RANKS(ranks=tuple(ranks)), self.own[ranks].mean(axis=0)
        yield from self._grouped()
        for other in range(size if size > 1 else 0):
            yield causes.ONE_RANKS_PART_ONLY(rank=other), self.own[other] / size

    def _grouped(self) -> Iterator[tuple[Cause, Array]]:
        """The gradient if groups of consecutive ranks, such as hosts, weigh equally whatever their sizes."""
        size = len(self.own)
        for length in range(2, size):
            if size % length:
                for cut in {*range(length, size, length)}, {*range(size % length, size, length)}:
                    groups = [list(map(int, group)) for group in np.split(np.arange(size), sorted(cut))]
                    means = [self.own[group].mean(axis=0) for group in groups]
                    yield causes.GROUPS_WEIGH_EQUALLY(groups=tuple(map(str, groups))), np.mean(means, axis=0)

    def _not_cleared(self) -> Iterator[tuple[Cause, Array]]:
        """The gradient if a rank without one had sent its last one again."""
        unused = self._unused()
        if self.inside or not len(unused):
            return
        ranks = _ranks(unused)
        array = self.own.copy()
        if self.before is not None:
            array[unused] = self.before[unused]
            yield causes.UNUSED_RANK_SENDS_OLD_MEAN(ranks=ranks), array.mean(axis=0)
        if self.earlier is not None:
            array[unused] = self.earlier[unused]
            yield causes.UNUSED_RANK_SENDS_OLD(ranks=ranks, backwards=1), array.mean(axis=0)
        for back, own in enumerate(self.long_before, start=2):
            array[unused] = own[unused]
            yield causes.UNUSED_RANK_SENDS_OLD(ranks=ranks, backwards=back), array.mean(axis=0)

    def _stale(self) -> Iterator[tuple[Cause, Array]]:
        """The gradient if a rank had sent its previous one."""
        yield from self._not_cleared()
        if self.earlier is None or self.inside:
            return
        for rank in range(len(self.own)):
            array = self.own.copy()
            array[rank] = self.earlier[rank]
            yield causes.RANK_SENDS_OLD(ranks=(rank,)), array.mean(axis=0)

    def _alternatives(self, expected: Array, rank: int) -> Iterator[tuple[Cause, Array]]:
        """Hypotheses about a wrong gradient, each with the gradient that it would give."""
        if not self.inside and self.own[rank].size > 1 and not self.own[rank].any() and expected.any():
            yield causes.OTHERS_PARTS_MISSING(), np.zeros_like(expected)
        if self.before is not None:
            before = self.before[rank]
            if self.backwards:
                yield causes.STALE(), before
            yield causes.NOT_RESET(), expected + before
            size = len(self.own)
            if self.backwards > 1 and size > 1 and not self.inside:
                yield causes.REDUCED_AGAIN(times=float(size)), expected + before * (size - 1)
                yield causes.REDUCED_AGAIN(times=1 / size), expected - before * ((size - 1) / size)
            for left in range(1, 1 if self.inside else size):
                kept = causes.SOME_RANKS_NOT_RESET(count=left, world_size=size)
                yield kept, expected + before * (left / size)
        if self.earlier is not None and self.backwards == 1 and not self.inside:
            yield causes.ACCUMULATED_SURVIVES_ZERO_GRAD(), expected + self.earlier.mean(axis=0)
        if self.backwards > 1:
            last = self.last[rank] if self.inside else self.last.mean(axis=0)
            yield causes.LAST_MICRO_BATCH_ONLY(), last
            first = self.first[rank] if self.inside else self.first.mean(axis=0)
            yield causes.FIRST_MICRO_BATCH_MISSING(), expected - first
            earlier = expected - (self.last[rank] if self.inside else self.last.mean(axis=0))
            yield causes.LAST_MICRO_BATCH_MISSING(), earlier
            yield causes.DIVIDED_BY_MICRO_BATCHES(count=self.backwards), expected / self.backwards
            if not self.inside:
                own = self.own[rank] - self.last[rank]
                yield causes.ACCUMULATED_NOT_REDUCED(), own + last
        if self.inside:
            yield causes.SYNCHRONISED_INSIDE_NO_SYNC(), self.own.mean(axis=0)
        elif self.weighted:
            yield causes.EQUAL_WEIGHTS_NOT_BY_SIZE(), self.own.mean(axis=0)
        else:
            share = self.counts / max(self.counts.sum(), 1)
            alike = len({*self.counts[self.counts > 0]}) == 1
            cause = causes.RANKS_WITHOUT_SAMPLES_LEFT_OUT() if alike else causes.WEIGHTED_BY_SIZE()
            yield cause, np.tensordot(share, self.own, 1)
        for other in range(len(self.own)):
            if other != rank:
                yield causes.OTHER_RANKS_VALUE(rank=other), self.own[other]
        if not self.inside:
            for extreme, combined in (("largest", self.own.max(axis=0)), ("smallest", self.own.min(axis=0))):
                if combined.any():  # zeros come of much else
                    yield causes.EXTREME_NOT_MEAN(extreme=extreme), combined
            product = self.own.prod(axis=0)
            if product.any():
                yield causes.PRODUCT_NOT_MEAN(), product


def _ranks(places: Array) -> tuple[int, ...]:
    return tuple(map(int, places))
