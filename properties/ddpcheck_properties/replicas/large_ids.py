"""Ids and labels that need more than two bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.hypotheses.replicas.special_runs import ids_or_labels_narrowed
from ddpcheck.job import Backward, Job, Operation, ZeroGrad
from ddpcheck.models.spec import Embedding, Linear, ModelSpec
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import for_each
from ..explicit_examples import fitting
from ..judges import with_causes
from ..strategies import GRADIENTS, shards, training_job
from .comparison import as_one_process

if TYPE_CHECKING:
    from ddpcheck.session import Session

MANY = 70_001
"""More ids, or classes, than two bytes can distinguish."""
BATCH = 12
"""Samples of a rank: some ids are below 2^15, some between, and some above 2^16."""


@law("gradients", needs.replica, needs.ranks(2, most=2))
def check_ids_and_labels_may_exceed_16_bits(session: Session) -> None:
    """With ids of 70,001 embedding rows, every sample selects its own row. With labels of 70,001 classes, every sample
    selects its own class.
    """
    world = session.world_size
    operations: list[Operation] = [ZeroGrad(), Backward(shards([BATCH] * world)), *GRADIENTS]
    ids = ModelSpec((Embedding("embedding", MANY, 1), Linear("fc1", 1, 2)), loss="linear")
    # in float32, sums over this many classes have no useful bound
    labels = ModelSpec((Linear("fc1", 1, MANY, bias=False),), loss="cross_entropy", dtype="float64")
    jobs = [training_job(world, ids, operations), training_job(world, labels, operations, exact=False)]
    for_each(session, fitting(session, jobs), with_causes(as_one_process(session.capabilities), _explain))


def _explain(job: Job, trace: Trace, finding: Finding) -> Given:
    told = finding.diagnosis
    return ids_or_labels_narrowed(job, told.subject[0], told.causes) if trace.completed else None
