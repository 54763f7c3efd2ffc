"""Hypotheses about a wrong loss or norm, from its origin and its position in the Job."""

from __future__ import annotations

import math

import numpy as np

from ..causes import Cause, programs, values
from ..job import Backward, Clip, Job, Observe, Operation, Predict, Resume, Save, ZeroGrad
from ..oracle import ExpectedOperation
from ..seeded_values import Array
from .arrays import Evidence
from .evidence import numbers_of

_LOOK = (Observe, Predict, Save, ZeroGrad)
"""Operations that do not change parameters and running statistics."""


def sure_after(cause: Cause, job: Job, position: int, *harmless: type[Operation]) -> Cause:
    """The cause, rated likely if only harmless and reading operations came before, so that no earlier mistake can show
    in it.
    """
    alone = all(isinstance(operation, (*_LOOK, *harmless)) for operation in job.operations[:position])
    return cause.but("likely" if alone else "possible")


def _observed(job: Job, position: int) -> bool:
    """Whether gradients were read since the last backward, and were right: the comparison stops at the first wrong
    value.
    """
    telling = [operation for operation in job.operations[:position] if isinstance(operation, Observe | Backward)]
    return bool(telling) and isinstance(telling[-1], Observe)


def _loaded_before(job: Job, position: int) -> bool:
    """Whether a state was loaded before this operation, and nothing was trained since."""
    telling = [operation for operation in job.operations[:position] if isinstance(operation, Resume | Backward)]
    return bool(telling) and isinstance(telling[-1], Resume)


def evidence_of_number(
    moment: ExpectedOperation, expected: Array, rank: int, all_got: list[float], job: Job
) -> Evidence:
    """Evidence for a number. A cause must explain the numbers of all ranks; otherwise it fits by chance.

    Numbers come as Python floats, and were computed in the model's dtype: 1e-5 is close enough.
    """
    size, got = len(expected), all_got[rank]
    known = [*numbers_of(moment)]
    if size > 1:
        known.append((values.SUMMED_NOT_AVERAGED(world_size=size), expected * size))
    alternatives = tuple(
        (cause, np.asarray(got))
        for cause, numbers in known
        if np.isclose(all_got, numbers, rtol=1e-5, atol=0.0, equal_nan=True).all()
        and not math.isclose(expected[rank], numbers[rank], rel_tol=1e-5)
    )
    zero = tuple(cause.but("possible") for cause, _ in alternatives) if got == 0 else ()
    operation, sure = moment.operation, tuple[Cause, ...]()
    if isinstance(operation, Backward):
        weights = operation.weights_on(rank)
        if not operation.samples[rank] or (weights is not None and not any(weights)):
            kind = programs.MEAN_OF_NO_SAMPLES if weights is None else programs.MEAN_OF_NO_WEIGHT
            alternatives += ((kind(), np.array(np.nan)),)
        sure = _sure_of_loss(operation, rank, all_got, expected, job, moment.position)
    elif operation.kind == "clip" and math.isfinite(got):
        sure = _sure_of_norm(float(expected[rank]), rank, all_got, job, moment.position)
    return Evidence(alternatives=alternatives, precision=False, zero=zero, otherwise=sure)


def _sure_of_loss(
    operation: Backward, rank: int, all_got: list[float], expected: Array, job: Job, position: int
) -> tuple[Cause, ...]:
    """Causes of a wrong loss that no hypothesis explains. Fewer bits would show on rank 0 as well."""
    near = abs(all_got[rank] - expected[rank]) < _FEW_BITS * abs(expected[rank])
    only_here = rank > 0 and all_got[0] == expected[0]
    return (
        *(programs.NEARLY_RIGHT(),) * bool(near and not only_here),
        *(programs.OTHER_SAMPLE_WEIGHTS(),) * bool(operation.weights),
        *(programs.STATE_INCOMPLETE(),) * _loaded_before(job, position),
        sure_after(programs.WRONG_FORWARD_VALUES(), job, position, Backward, Clip),
    )


def _sure_of_norm(expected: float, rank: int, all_got: list[float], job: Job, position: int) -> tuple[Cause, ...]:
    """Causes of a wrong norm that no hypothesis explains."""
    size, got = len(all_got), all_got[rank]
    if size > 1 and math.isclose(math.hypot(*all_got), expected, rel_tol=1e-5):
        return (programs.NORM_OF_SHARD(),)
    factor = got / expected if expected else 0.0
    if factor >= 4 and math.isclose(factor, 2 ** round(math.log2(factor)), rel_tol=1e-5):
        return (programs.NORM_OF_SCALED(factor=factor),)
    wrong = (programs.NORM_TOO_LARGE if got > expected else programs.NORM_TOO_SMALL)()
    shards = expected < got <= math.sqrt(size) * expected * (1 + 1e-5)
    return (
        wrong.but("likely" if _observed(job, position) else "possible"),
        *(programs.NORMS_OF_SHARDS_ADDED(),) * shards,
    )


_FEW_BITS = 2.0**-7
