"""The basis of the tolerance for batch norm's gradients: the growth of errors in Jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpcheck.contract import TYPICAL, Capabilities
from ddpcheck.job import Job
from ddpcheck.oracle import Oracle
from ddpcheck.oracle.bounded_values import Value
from ddpcheck.seeded_values import Array
from ddpcheck_properties.replicas import batch_norm_local
from ddpcheck_properties.replicas.batch_norm import gradient_jobs

PROMISED = TYPICAL.of_facets("replica").but(batch_norm="synchronised")
LOCAL = TYPICAL.of_facets("replica").but(batch_norm="local")
MOVED = 2.0**-30


def gradients(job: Job, moved: float = 0.0, promised: Capabilities = PROMISED) -> list[dict[str, Array]]:
    """The gradients of each Observe if parameters and inputs are off by a relative `moved`, up or down."""
    rng = np.random.default_rng(0)
    oracle = Oracle(job, promised)
    for name, value in oracle.weights.tensors.items():
        factor = 1 + moved * rng.choice((-1, 1), value.exact[:1].shape)
        oracle.weights.tensors[name] = Value(value.exact * factor)
    inputs, targets = oracle.case.data
    oracle.case.data = inputs * (1 + moved * rng.choice((-1, 1), inputs.shape)), targets
    looks = [moment.arrays["gradients"] for moment in oracle.walk() if moment.arrays]
    return [{name: entry.value.exact[0] for name, entry in look.items()} for look in looks]


@pytest.mark.parametrize("promised", [PROMISED, LOCAL], ids=["synchronised", "local"])
@pytest.mark.parametrize("world_size", [2, 3, 4, 5, 8])
def test_relative_errors_grow_by_less_than_the_tolerance_allows(world_size: int, promised: Capabilities) -> None:
    make = gradient_jobs if promised is PROMISED else batch_norm_local.jobs
    for job in make(world_size, uneven=True):
        for exact, off in zip(gradients(job, 0.0, promised), gradients(job, MOVED, promised), strict=True):
            largest = max(abs(array).max() for array in exact.values())
            assert max(abs(off[name] - exact[name]).max() for name in exact) < 2**13 * MOVED * largest


def test_samples_of_all_ranks_are_one_batch() -> None:
    for job in gradient_jobs(3, uneven=False):
        first = job.operations[1]
        assert first.kind == "backward"
        alone = replace(first, samples=(tuple(index for rank in first.samples for index in rank),))
        whole = Job(1, (job.operations[0], alone, job.operations[2]), job.model, job.optimizer, job.data, job.seed)
        for name, array in gradients(whole)[0].items():
            np.testing.assert_allclose(gradients(job)[0][name], array, rtol=1e-9, atol=1e-12)
