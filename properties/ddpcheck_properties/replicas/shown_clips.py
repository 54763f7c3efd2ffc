"""Clipping, judged by the gradients that the replica shows before it.

So wrong gradients hide no mistake in clipping. Judged are only clips that a known mistake explains: wrong gradients may
differ between ranks, and then an implementation may take the norm in several ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import Cause, updates
from ddpcheck.hypotheses.arrays import Evidence
from ddpcheck.hypotheses.gradients.clips import clipped_otherwise
from ddpcheck.hypotheses.norms import norms_of
from ddpcheck.job import Backward, Clip, Job, Operation, OptimizerSpec, ZeroGrad
from ddpcheck.models.spec import mlp
from ddpcheck.oracle import clipping
from ddpcheck.oracle.bounded_values import Value
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..drawing import for_each
from ..explicit_examples import fitting
from ..strategies import GRADIENTS, shards, training_job
from .comparison import when

if TYPE_CHECKING:
    from ddpcheck.session import Session

_LIMITS = (0.1, 0.3, 100.0)
_NEAR = 1e-5
"""The relative difference of two norms that are computed in float32 and in float64."""


def raise_for_wrong_clips(session: Session) -> None:
    """Raise a Finding if clips of gradients that may be wrong are wrong themselves."""
    operations: list[Operation] = []
    for number, limit in enumerate(_LIMITS):
        samples = shards([2] * session.world_size, 2 * number * session.world_size)
        operations += [ZeroGrad(), Backward(samples), *GRADIENTS, Clip(limit), *GRADIENTS]
    job = training_job(session.world_size, mlp((2, 3, 2), activation="tanh"), operations, OptimizerSpec(), exact=False)
    for_each(session, fitting(session, [job]), clips_shown_gradients)


def clips_shown_gradients(job: Job, trace: Trace) -> None:
    """Every clip is right, or wrong in a way that is not known. Causes that explain all wrong gradients are told."""
    assertions.completed(trace)
    wrong: list[Finding] = []
    for position, operation in enumerate(job.operations):
        if isinstance(operation, Clip):
            _judge_norm(job, trace, position, operation.max_norm)
            wrong += _wrongly_clipped(job, trace, position, operation.max_norm)
    if not wrong:
        return
    first = wrong[0].diagnosis.causes
    common = frozenset.intersection(*(frozenset(cause.id for cause in each.diagnosis.causes) for each in wrong))
    raise wrong[0].blaming(tuple(cause for cause in first if cause.id in common) or first)


def _judge_norm(job: Job, trace: Trace, position: int, limit: float) -> None:
    """A norm of which the ranks' numbers are all explained by one mistake."""
    got = np.asarray(trace.values(position, "norm"), np.float64)
    shown = [_shown(trace, position - 1, rank) for rank in range(job.world_size)]
    right = np.array([_norm(each) for each in shown])
    if np.allclose(got, right, rtol=_NEAR):
        return
    for cause, norms in _other_norms(shown, right, limit):
        if np.allclose(got, norms, rtol=_NEAR) and not np.allclose(norms, right, rtol=_NEAR):
            rank = int(np.argmax(abs(got - right)))
            text = f"norm of clip ({when(job, position)}), of the gradients that were there, on rank {rank}"
            raise Finding(Diagnosis(f"{text}: got {got[rank]!r}, but should be {right[rank]!r}", (cause,))).about(
                "norm"
            )


def _other_norms(shown: list[dict[str, Array]], right: Array, limit: float) -> Iterator[tuple[Cause, Array]]:
    yield updates.NORM_LARGEST_OF_RANKS(), np.full_like(right, right.max())
    yield updates.NORM_SUMMED_OVER_RANKS(world_size=len(right)), np.full_like(right, math.hypot(*right))
    by_rank = [norms_of({name: array[np.newaxis] for name, array in each.items()}, limit) for each in shown]
    for told in zip(*by_rank, strict=False):  # ranks may lack gradients
        yield told[0][0], np.array([numbers[0] for _, numbers in told])


def _wrongly_clipped(job: Job, trace: Trace, position: int, limit: float) -> Iterator[Finding]:
    """The gradients after a clip that are not those before it, scaled by the norm that the clip returned."""
    for rank, norm in enumerate(trace.values(position, "norm")):
        before = {name: array[np.newaxis] for name, array in _shown(trace, position - 1, rank).items()}
        after = trace.values(position + 1, "gradients")[rank]
        clip = clipping.Clip(before, limit, dict.fromkeys(before, "float32"))
        for name in (name for name in before if after[name] is not None):
            right = clipping.clipped(Value(before[name]), Value(np.array([norm])), limit, "float32").exact[0]
            bound = np.full_like(right, _NEAR * abs(right).max(initial=0))
            known = tuple((cause, array[0]) for cause, array in clipped_otherwise(clip, name))
            what = f"gradient of {name} ({when(job, position + 1)}), clipped from the one before,"
            try:
                assertions.within(after[name], right, bound, what, rank, Evidence(alternatives=known, precision=False))
            except Finding as finding:
                if finding.diagnosis.causes:
                    yield finding.about("gradients", name)


def _shown(trace: Trace, position: int, rank: int) -> dict[str, Array]:
    """The gradients that a rank shows, by name, in float64."""
    seen: Mapping[str, Array | None] = trace.values(position, "gradients")[rank]
    return {name: np.asarray(array, np.float64) for name, array in seen.items() if array is not None}


def _norm(gradients: Mapping[str, Array]) -> float:
    return math.sqrt(sum(float((array**2).sum()) for array in gradients.values()))
