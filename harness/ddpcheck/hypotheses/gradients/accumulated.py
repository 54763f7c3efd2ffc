"""The contributions to a gradient, collected from its backward passes. Arrays are copied and summed only here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from ...oracle.auxiliary_terms import terms_of
from ...oracle.bounded_values import by_rank
from ...oracle.history import Done
from ...oracle.job_constants import Case
from ...oracle.origins import Accumulated
from ...seeded_values import Array
from .auxiliary_terms import Terms
from .contributions import Contributions
from .passes import at_values, kinds_of_values, layers_gone_wrong, shares, weighted
from .sample_weights import SampleWeights

_IN_TURN = 4
"""The most buffers in turn of which one may not be cleared."""


def contributions_of(origin: Accumulated) -> Contributions:
    """The contributions to a gradient that was not clipped."""
    name, done = origin.name, origin.history.since_zero_grad()
    parts = [one.own[name] for one in done if name in one.own]
    if not parts:  # a later zero_grad removed them
        zero = origin.zeros[name]
        return Contributions(
            zero, zero, zero, _shown(origin, 1), 0, origin.history.counts, origin.inside, origin.weighted
        )
    others = {
        other: origin.zeros[other] if (own := origin.history.own(other)) is None else own for other in origin.zeros
    }
    of_layers = partial(shares, done[0].forward, name) if origin.shared and len(done) == 1 else None
    passed = partial(layers_gone_wrong, done[0].forward, name, parts[0]) if len(done) == 1 else None
    return Contributions(
        others[name], parts[0], parts[-1], _shown(origin, 2), len(done), origin.history.counts, origin.inside, origin.weighted,
        others, of_layers, _before_the_last(origin), passed, _weighing(origin, done), _terms(origin, done), _long_before(origin),
        _at_initial_values(origin.untrained, done, name), done[-1].forward.learned.get(name),
    )  # fmt: skip


def _at_initial_values(
    case: Case | None, done: Sequence[Done], name: str
) -> Callable[[], Iterator[tuple[str, Array]]] | None:
    """Each rank's own gradient at its own initial values, by the kind of these values; None if sums are promised."""
    if case is None or case.promised.replica.gradient == "sum":
        return None

    def found() -> Iterator[tuple[str, Array]]:
        for what, given in kinds_of_values(case.given(), case.described.values()):
            if given:
                parts = [at_values(one.forward, given).gradients[name] for one in done if name in one.own]
                yield what, np.sum(parts, axis=0)

    return found


def _terms(origin: Accumulated, done: Sequence[Done]) -> Terms | None:
    """The auxiliary terms, with the ranks' weights in the last backward."""
    passes = [one.forward for one in done if origin.name in one.own]
    if not terms_of(passes[0].model):
        return None
    weights, counts = passes[-1].shards.weights, origin.history.counts
    weigh = counts * float(origin.weighted) if weights is None else weights.sum(axis=1) * float(origin.by_weight)
    weigh = weigh / weigh.sum() if weigh.any() else np.full(len(counts), 1 / len(counts))
    before = [one.forward for one in origin.history.backwards[: -len(done)] if origin.name in one.own]
    return Terms(origin.name, passes, weigh, origin.inside, [*before[:1], *before[-1:]])


def _weighing(origin: Accumulated, done: Sequence[Done]) -> SampleWeights | None:
    """The sample weights of the last backward."""
    weights = done[-1].forward.shards.weights
    if weights is None or origin.inside:
        return None

    def ignored() -> Array:
        parts = [weighted(one.forward, None).gradients[origin.name] for one in done if origin.name in one.own]
        return np.asarray(sum(parts[1:], parts[0]))

    shards = [one.forward.shards for one in origin.history.backwards[:-1]]
    earlier = [one.weights for one in shards if one.weights is not None]
    return SampleWeights(weights, earlier, origin.history.counts, origin.by_weight, ignored)


def _shown(origin: Accumulated, back: int) -> Array | None:
    """The gradient after the last backward (1) or the one before (2)."""
    backwards = origin.history.backwards
    if len(backwards) < back or origin.name not in backwards[-back].own:
        return None
    shown = backwards[-back].shown[origin.name].sum(origin.dtype)
    return None if shown is None else shown.exact


def _long_before(origin: Accumulated) -> Sequence[Array]:
    """Each rank's own gradient of the backwards before the last but one, the latest first."""
    long_before = origin.history.backwards[-3 : -3 - _IN_TURN : -1]
    return [done.own[origin.name] if origin.name in done.own else origin.zeros[origin.name] for done in long_before]


def _before_the_last(origin: Accumulated) -> Array | None:
    """Each rank's own gradient of the last earlier backward in which the rank used the parameter."""
    found: Array | None = None
    for done in origin.history.backwards[:-1]:
        if origin.name in done.own:
            own = done.own[origin.name]
            used = by_rank(done.used[origin.name], own)
            found = own if found is None else np.where(used, own, found)
    return found
