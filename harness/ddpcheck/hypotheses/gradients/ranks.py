"""Hypotheses about a gradient: ranks are left out, send old gradients, or are combined in another way."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ...causes import gradients as causes
from ...seeded_values import Array
from ..arrays.evidence import WhatIf
from .contributions import Contributions, named

_RANKS = 6
"""For up to this many ranks all subsets are tried."""
_TWO = 2
"""Backwards of which the first and the last are all."""


def parts_of_others_missing(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """Only this rank's own part is included, and it is zero."""
    if not made.inside and made.own[rank].size > 1 and not made.own[rank].any() and expected.any():
        yield causes.OTHERS_PARTS_MISSING(), np.zeros_like(expected)


def other_weights_of_ranks(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """Reduced inside no_sync; or ranks count equally or by their batch sizes, against the promise."""
    if made.inside:
        yield causes.SYNCHRONISED_INSIDE_NO_SYNC(), made.own.mean(axis=0)
    elif made.weighted:
        yield causes.EQUAL_WEIGHTS_NOT_BY_SIZE(), made.own.mean(axis=0)
    else:
        share = made.counts / max(made.counts.sum(), 1)
        alike = len({*made.counts[made.counts > 0]}) == 1
        cause = causes.RANKS_WITHOUT_SAMPLES_LEFT_OUT() if alike else causes.WEIGHTED_BY_SIZE()
        yield cause, np.tensordot(share, made.own, 1)


def of_other_rank(made: Contributions, expected: Array, rank: int) -> WhatIf:
    for other in range(len(made.own)):
        if other != rank:
            yield causes.OTHER_RANKS_VALUE(rank=other), made.own[other]


def other_reductions(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """An extreme or a product in place of the mean."""
    if made.inside:
        return
    for extreme, combined in (("largest", made.own.max(axis=0)), ("smallest", made.own.min(axis=0))):
        if combined.any():  # zeros have many causes
            yield causes.EXTREME_NOT_MEAN(extreme=extreme), combined
    product = made.own.prod(axis=0)
    if product.any():
        yield causes.PRODUCT_NOT_MEAN(), product


def added_to_own(made: Contributions, expected: Array, rank: int) -> WhatIf:
    if not made.inside and len(made.own) > 1:
        yield causes.ADDED_TO_OWN(), expected + made.own[rank]


def at_own_initial_values(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """Construction left ranks with other values than rank 0's; and perhaps the gradients are summed."""
    if made.inside or made.initial is None:
        return
    size = len(made.own)
    weights = made.counts / max(made.counts.sum(), 1) if made.weighted else np.full(size, 1 / size)
    for what, own in made.initial():
        yield causes.AT_OWN_INITIAL(values=what), np.tensordot(weights, own, 1)
        yield causes.SUMMED_AT_OWN_INITIAL(values=what), own.sum(axis=0)


def loss_scaled_by_world_size(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """Local gradients inside no_sync of a loss that is multiplied or divided by the world size."""
    size = len(made.own)
    if made.inside:
        yield causes.LOSS_MULTIPLIED_BY_WORLD_SIZE(world_size=size), size * expected
        yield causes.LOSS_DIVIDED_BY_WORLD_SIZE(world_size=size), expected / size
        if made.backwards == _TWO:
            last = made.last[rank] / size
            yield causes.DIVIDED_IN_EVERY_BACKWARD(world_size=size), (expected - made.last[rank]) / size**2 + last


def ranks_left_out(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """The gradient if a rank's part is missing in the sum, and perhaps in the divisor."""
    if made.inside:
        return
    unused = made.unused
    if 0 < len(unused) < len(made.own):
        rest = np.delete(made.own, unused, axis=0).mean(axis=0)
        yield causes.UNUSED_RANKS_LEFT_OUT(ranks=named(unused)), rest
    size = len(made.own)
    for left in range(min(size, _RANKS) - 1, 1, -1):
        for ranks in map(list, combinations(range(size), left)):
            others = named(np.delete(np.arange(size), ranks))
            yield causes.RANKS_MISSING(ranks=others), made.own[ranks].sum(axis=0) / size
            yield causes.MEAN_OF_SOME_RANKS(ranks=tuple(ranks)), made.own[ranks].mean(axis=0)
    yield from _grouped(made)
    for other in range(size if size > 1 else 0):
        yield causes.ONE_RANKS_PART_ONLY(rank=other), made.own[other] / size


def _grouped(made: Contributions) -> WhatIf:
    """The gradient if groups of consecutive ranks, such as hosts, have equal weights for any sizes."""
    size = len(made.own)
    for length in range(2, size):
        if size % length:
            for cut in {*range(length, size, length)}, {*range(size % length, size, length)}:
                groups = [list(map(int, group)) for group in np.split(np.arange(size), sorted(cut))]
                means = [made.own[group].mean(axis=0) for group in groups]
                yield causes.GROUPS_WEIGH_EQUALLY(groups=tuple(map(str, groups))), np.mean(means, axis=0)


def old_gradient_of_unused_rank(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """If other ranks have a gradient, ranks without one send an old one."""
    if len(made.unused) < len(made.own):
        yield from _sent_again(made)


def _sent_again(made: Contributions) -> WhatIf:
    """The gradient if a rank without one had sent its last one again."""
    unused = made.unused
    if made.inside or not len(unused):
        return
    ranks = named(unused)
    array = made.own.copy()
    if made.before is not None:
        array[unused] = made.before[unused]
        yield causes.UNUSED_RANK_SENDS_OLD_MEAN(ranks=ranks), array.mean(axis=0)
    if made.earlier is not None:
        array[unused] = made.earlier[unused]
        yield causes.UNUSED_RANK_SENDS_OLD(ranks=ranks, backwards=1), array.mean(axis=0)
    for back, own in enumerate(made.long_before, start=2):
        array[unused] = own[unused]
        yield causes.UNUSED_RANK_SENDS_OLD(ranks=ranks, backwards=back), array.mean(axis=0)


def old_gradient(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """The gradient if a rank had sent its previous one."""
    yield from _sent_again(made)
    if made.earlier is None or made.inside:
        return
    for rank in range(len(made.own)):
        array = made.own.copy()
        array[rank] = made.earlier[rank]
        yield causes.RANK_SENDS_OLD(ranks=(rank,)), array.mean(axis=0)
