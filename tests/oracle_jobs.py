"""Jobs for tests of the oracle, and helpers to walk them."""

from __future__ import annotations

from ddpcheck.contract import TYPICAL, Capabilities
from ddpcheck.job import Backward, Job, Observe, ZeroGrad
from ddpcheck.models.spec import ModelSpec
from ddpcheck.oracle import ExpectedOperation, Oracle
from ddpcheck_properties.strategies import shards, training_job

PROMISED = TYPICAL.of_facets("replica")


def moments(job: Job, capabilities: Capabilities = PROMISED, bounds: bool = False) -> list[ExpectedOperation]:
    return list(Oracle(job, capabilities, bounds=bounds).walk())


def one_backward(
    model: ModelSpec, batches: list[int], *, exact: bool = False, branches: tuple[tuple[str, ...], ...] = ()
) -> Job:
    look = Observe(("gradients",))
    return training_job(
        len(batches), model, [ZeroGrad(), Backward(shards(batches), branches=branches), look], exact=exact
    )


def job_model(job: Job) -> ModelSpec:
    assert job.model is not None
    return job.model
