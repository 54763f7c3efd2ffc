"""The judge of a new replica."""

from __future__ import annotations

from typing import Literal

from ddpcheck import assertions
from ddpcheck.hypotheses.arrays import Evidence
from ddpcheck.hypotheses.replicas.special_runs import other_initial_values
from ddpcheck.job import Job
from ddpcheck.models.spec import Scale
from ddpcheck.trace import Trace

from ..judges import Judge


def from_rank_0(what: Literal["parameters", "buffers"]) -> Judge:
    """A Job whose first operation observes a new replica: every rank has rank 0's initial values, bit for bit."""

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        assert job.model is not None
        initial = [job.initial(rank) for rank in range(job.world_size)]
        unsaved = {f"{layer.name}.scale" for layer in job.model.layers if isinstance(layer, Scale) and layer.unsaved}
        for name in (tensor.name for tensor in job.model.tensors() if (tensor.role == "buffer") == (what == "buffers")):
            of_ranks = [values[name] for values in initial]
            for rank, seen in enumerate(trace.values(0, what)):
                known = tuple(other_initial_values(of_ranks, rank, unsaved=name in unsaved))
                text = f"{what.removesuffix('s')} {name} of a new replica"
                assertions.same_array(
                    seen[name], initial[0][name], text, rank, Evidence(job.world_size, alternatives=known)
                )

    return judge
