"""Local batch norm: each rank normalises by its own batch, and gradients are then averaged like any others.

The oracle runs every rank's network on the rank's own samples. Gradients are judged in float64 with the tolerance of
batch_norm.py, for its reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import assertions
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, needs
from ddpcheck.hypotheses.arrays import Alternatives, Evidence
from ddpcheck.hypotheses.evidence import numbers_of
from ddpcheck.hypotheses.replicas.batch_norm import batch_norm_itself
from ddpcheck.job import Job
from ddpcheck.oracle import Oracle
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import for_each
from ..explicit_examples import fitting
from ..judges import Judge
from ..strategies import GRADIENTS
from .batch_norm import CHAINS, TOLERANCE, forwards
from .comparison import when

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law(
    "replica_sync",
    needs.replica,
    needs.replica.model_features("batch_norm"),
    needs.replica.batch_norm("local"),
    needs.replica.replica_dtypes("float64"),
    needs.replica.reduction_dtype("model"),
)
def check_local_batch_norm_uses_each_ranks_own_batch(session: Session) -> None:
    """Losses are those of networks that normalise over their rank's own batch. Gradients are the mean over ranks of those
    networks' gradients, including layers before the batch norm.
    """
    uneven = session.capabilities.replica.uneven_batches == "equal_weight"
    for_each(session, fitting(session, jobs(session.world_size, uneven=uneven)), _same(session.capabilities))


def jobs(world_size: int, *, uneven: bool) -> list[Job]:
    """Networks with one batch norm and with two, on equal batches and, if `uneven`, on unequal ones."""
    found = [[3] * world_size] + [[3 + rank for rank in range(world_size)]] * uneven
    return [forwards(world_size, batches, layers, *GRADIENTS) for batches in found for layers in CHAINS]


def _same(promised: Capabilities) -> Judge:
    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        for moment in Oracle(job, promised, bounds=False).walk():
            time = when(job, moment.position)
            for name, value in moment.numbers.items():
                for rank, got in enumerate(trace.values(moment.position, name)):
                    largest, text = abs(value.exact).max(), f"{name} ({time})"
                    _near(np.asarray(got), value.exact[rank], largest, text, rank, numbers_of(moment))
            entries = moment.arrays.get("gradients", {})
            largest = max((abs(entry.value.exact).max() for entry in entries.values()), default=0.0)
            for name in reversed(list(entries)):
                for rank, seen in enumerate(trace.values(moment.position, "gradients")):
                    text = f"gradient of {name} ({time})"
                    assertions.that(seen[name] is not None, f"{text} on rank {rank}: got none, but should be an array")
                    _near(seen[name], entries[name].value.exact[rank], largest, text, rank)

    return judge


def _near(got: Array, exact: Array, largest: float, text: str, rank: int, numbers: Alternatives = ()) -> None:
    """numbers: for each cause, the value on every rank."""
    known = Evidence(alternatives=tuple((cause, np.asarray(array[rank])) for cause, array in numbers))
    try:
        assertions.within(got, exact, np.full_like(exact, TOLERANCE * largest), text, rank, known)
    except Finding as finding:
        sure = finding.diagnosis.causes
        raise finding.blaming(sure, batch_norm_itself(sure)) from None
