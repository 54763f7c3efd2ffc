"""What a user sets for an implementation takes effect, or is refused: a name that is not known is no silent default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck import expect
from ddpcheck.checks import law
from ddpcheck.job import DataSpec, Job, MeasureSteps
from ddpcheck.model import mlp
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from .drawing import for_each
from .pitfalls import fitting
from .strategies import shards

if TYPE_CHECKING:
    from ddpcheck.session import Session

UNKNOWN = "no_implementation_has_this_option"


@law("gradients", "facet:replica", "world_size<=2")
def check_an_unknown_option_is_an_error(session: Session) -> None:
    """A replica with an option that its implementation does not have is a ValueError on every rank, which names it."""
    world = session.world_size
    measured = MeasureSteps(shards([1] * world), warmups=0, iterations=1, options=((UNKNOWN, 1.0),))
    job = Job(world, (measured,), mlp((2, 2)), data=DataSpec(world, "lattice", 1))
    for_each(session, fitting(session, [job]), _refused)


def _refused(job: Job, trace: Trace) -> None:
    for rank in trace.ranks:
        cause = "options that are not known are ignored: a user who mistypes one measures, and trains, another thing"
        expect.equal(rank.outcome, "raised", f"a replica with the option {UNKNOWN}", rank.rank, cause)
        if "ValueError" not in rank.error or UNKNOWN not in rank.error:
            headline = f"a replica with the option {UNKNOWN} on rank {rank.rank}: got {rank.error.splitlines()[-1]}"
            raise Finding(Diagnosis(f"{headline}, but should be a ValueError that names it"))
