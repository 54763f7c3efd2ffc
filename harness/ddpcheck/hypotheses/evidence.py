"""The evidence about a wrong value: the hypotheses about its kind, with the values that they predict."""

from __future__ import annotations

import numpy as np

from ..causes import Cause, gradients, updates
from ..job import AllGather, Broadcast
from ..oracle.expected_values import ExpectedArray, ExpectedOperation
from ..oracle.origins import Accumulated, Averaged, Loading, Losses, Norm, Origin, PassedOver, Tracked, Update
from ..seeded_values import Array
from .arrays import Alternatives, Evidence
from .collectives.evidence import WrongResult
from .collectives.layouts import layout_ignored
from .collectives.messages import WrongMessage
from .gradients.accumulated import contributions_of
from .gradients.clips import clipped_otherwise
from .gradients.contributions import Contributions, named
from .ordered_hypotheses.collectives import OF_A_COLLECTIVE, OF_A_MESSAGE
from .ordered_hypotheses.gradients import OF_A_GRADIENT, OF_A_NORM, OF_AN_UPDATE, OF_LOSSES
from .updates.loading import of_loaded
from .updates.moving_averages import of_average
from .updates.statistics import of_statistics
from .updates.steps_without_gradient import of_parameter_without_gradient
from .updates.updates import is_first, stepped


def evidence_of(entry: ExpectedArray, rank: int) -> Evidence:
    """Hypotheses about a wrong gradient, parameter, buffer or average on this rank."""
    exact = entry.value.exact
    if entry.made_of is not None:
        return of_origin(entry.made_of, exact[rank], rank)
    known: list[tuple[Cause, Array]] = [
        (updates.STATISTICS_OF_RANK(rank=other), exact[other]) for other in range(len(exact)) if other != rank
    ]
    if exact.dtype.kind == "f":
        known.append((updates.STATISTICS_MEAN(), exact.mean(axis=0)))
    return Evidence(len(entry.presence), alternatives=tuple(known), precision=False)


def evidence_of_result(of: WrongResult) -> Evidence:
    """Hypotheses about a wrong result of a collective."""
    tensor = of.tensor
    with np.errstate(all="ignore"):
        known = tuple(
            (cause, np.asarray(array).astype(tensor.dtype))
            for hypothesis in OF_A_COLLECTIVE
            for cause, array in hypothesis(of)
        )
    return Evidence(
        len(of.members),
        local=tensor.on(of.rank) if of.all_reduce else None,
        alternatives=known,
        otherwise=layout_ignored(tensor.layout),
        moved=isinstance(of.collective, Broadcast | AllGather),
    )


def evidence_of_message(of: WrongMessage) -> Evidence:
    """Hypotheses about a wrong message between two ranks."""
    known = tuple(each for hypothesis in OF_A_MESSAGE for each in hypothesis(of))
    return Evidence(of.job.world_size, alternatives=known, moved=True)


def numbers_of(moment: ExpectedOperation) -> Alternatives:
    """Hypotheses about a wrong loss or norm, each with the numbers of all ranks."""
    if isinstance(moment.made_of, Losses):
        return tuple(each for hypothesis in OF_LOSSES for each in hypothesis(moment.made_of))
    if isinstance(moment.made_of, Norm):
        return tuple(each for hypothesis in OF_A_NORM for each in hypothesis(moment.made_of))
    return ()


def of_origin(origin: Origin, expected: Array, rank: int) -> Evidence:
    """Hypotheses about a wrong value with this origin. expected: the right array on this rank."""
    match origin:
        case Accumulated():
            return _of_gradient(origin, expected, rank)
        case Update():
            return _of_update(origin, expected, rank)
        case PassedOver():
            return of_parameter_without_gradient(origin, _of_earlier(origin.earlier, expected, rank), rank)
        case Loading():
            return of_loaded(origin, _of_earlier(origin.earlier, expected, rank), rank)
        case Averaged():
            return of_average(origin, expected, rank)
        case Tracked():
            return of_statistics(origin, expected, rank)


def _of_earlier(origin: Origin | None, expected: Array, rank: int) -> Alternatives:
    return of_origin(origin, expected, rank).alternatives if origin else ()


def _of_gradient(origin: Accumulated, expected: Array, rank: int) -> Evidence:
    if origin.clipped is not None and origin.name in origin.clipped.before:
        known = tuple((cause, array[rank]) for cause, array in clipped_otherwise(origin.clipped, origin.name))
        return Evidence(len(origin.history.counts), alternatives=known)
    return evidence_of_gradient(contributions_of(origin), expected, rank)


def evidence_of_gradient(made: Contributions, expected: Array, rank: int) -> Evidence:
    """Hypotheses about a gradient of these contributions."""
    known = tuple(each for hypothesis in OF_A_GRADIENT for each in hypothesis(made, expected, rank))
    own, size = made.own[rank], len(made.own)
    if made.inside:
        return Evidence(1, own, known)
    unused = made.unused
    doubt = (
        *(gradients.UNUSED_RANKS_LEFT_OUT(ranks=named(unused)),) * (0 < len(unused) == size - 1),
        *_kept(made, expected),
        *(made.terms.doubt(made.own) if made.terms else ()),
    )
    left = (gradients.STATE_LEFT_BEHIND(),) * (made.before is not None)
    less = (gradients.DIVIDED_BY_MICRO_BATCHES(count=made.backwards),) * (made.backwards == size)
    return Evidence(size, own, known, doubt=doubt, less=less, otherwise=left, parts=made.own)


def _kept(made: Contributions, expected: Array) -> tuple[Cause, ...]:
    """Another cause of a factor of 2 at two ranks, if the previous backward had an equal gradient."""
    same = len(made.own) == 2 and made.earlier is not None and np.allclose(made.earlier.mean(axis=0), expected)
    return (gradients.ACCUMULATED_SURVIVES_ZERO_GRAD(),) * bool(same)


def _of_update(update: Update, expected: Array, rank: int) -> Evidence:
    """Hypotheses about an update. Small differences do not suggest lost precision: an update is small beside the
    parameter.
    """
    known = tuple(
        (cause, array[rank]) for hypothesis in OF_AN_UPDATE for cause, array in hypothesis(update, expected, rank)
    )
    spec = update.optimizer.spec
    first = (spec.name == "adam" or spec.momentum > 0) and is_first(update)
    adds = spec.name == "sgd" and update.before[rank].ndim == 2
    return Evidence(
        len(update.before),
        alternatives=known,
        before=update.before[rank],
        idle=stepped(update, gradient=np.zeros_like(update.gradient))[rank] if adds else None,
        precision=False,
        otherwise=(updates.FIRST_UPDATE_HAS_STATE(),) * first,
    )
