"""Jobs for optional promises of replicas: invalid ones are refused, files keep them, and the oracle computes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpcheck.contract import TYPICAL, Capabilities
from ddpcheck.job import Backward, Job, Join, Observe, Operation, OptimizerSpec, Remeasure, SetTrainable, Step
from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.oracle import Oracle
from ddpcheck.seeded_values import Array
from ddpcheck_properties.replicas.broken_backwards import broken
from ddpcheck_properties.replicas.joining import joining
from ddpcheck_properties.replicas.parameter_averages import averaging_job
from ddpcheck_properties.replicas.skipped_steps import overflow, poisoned
from ddpcheck_properties.replicas.trajectories import unfreezing

CONSTANT = ModelSpec((Linear("fc1", 3, 2),), loss="linear")
BATCH = ((0,), (1,))


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (Backward(BATCH, interrupted=(0,)), "interrupted inside no_sync, but synchronised"),
        (Backward(BATCH, broken=(0,)), "broken on some ranks only"),
        (Backward(BATCH, broken=(0, 1)), "no zero_grad is next"),
        (Backward(BATCH, second=BATCH, broken=(0, 1)), "two forward passes, or is interrupted"),
        (Backward(BATCH, second=((0,),)), "has samples for 1 ranks, not 2"),
        (SetTrainable(("fc9",)), "'fc9' is not a Linear layer"),
        (Join(((), ())), "no rank has a batch"),
        (Join((((0,),), ((99,),))), "a sample index is outside"),
        (Remeasure(((0,),)), "has samples for 1 ranks, not 2"),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_operations_that_do_not_fit_are_refused(operation: Operation, words: str) -> None:
    job = joining([2, 1], CONSTANT)
    with pytest.raises(ValueError, match=words):
        replace(job, operations=(operation,))


def test_a_poisoned_sample_must_exist() -> None:
    with pytest.raises(ValueError, match="a poisoned sample is outside"):
        poisoned(overflow(2, OptimizerSpec()), 1000, "nan")


def test_jobs_are_written_and_read_again() -> None:
    jobs = [
        joining([2, 0], CONSTANT),
        broken(2, (1,), sync=False),
        poisoned(overflow(2, OptimizerSpec()), 5, "inf"),
        averaging_job(2, OptimizerSpec(averaging=0.5), resumed=True),
        unfreezing(2, OptimizerSpec(), exact=True),
    ]
    assert [Job.from_plain(job.to_plain()) for job in jobs] == jobs


def parameters(job: Job, promised: Capabilities) -> list[dict[str, Array]]:
    with np.errstate(invalid="ignore"):
        moments = tuple(Oracle(job, promised).walk())
    return [
        {name: entry.value.exact[0] for name, entry in moment.arrays["parameters"].items()}
        for moment in moments
        if isinstance(moment.operation, Observe) and "parameters" in moment.arrays
    ]


@pytest.mark.parametrize(("rule", "divisors"), [("divide_by_initial_world", (2, 2)), ("divide_by_live_ranks", (2, 1))])
def test_join_divides_as_promised(rule: str, divisors: tuple[int, int]) -> None:
    job = joining([2, 1], CONSTANT)
    assert job.data is not None
    targets = job.data.arrays(CONSTANT)[1].astype(np.float64)
    first, second = (targets[0:2].mean(0) + targets[4:6].mean(0)) / divisors[0], targets[2:4].mean(0) / divisors[1]
    got = parameters(job, TYPICAL.of_facets("replica").but(join=rule))[0]["fc1.bias"]  # type: ignore[arg-type]  # a parameter of the test
    np.testing.assert_allclose(got, job.initial(0)["fc1.bias"] - 0.05 * (first + second), rtol=1e-6)


def test_skipped_step_has_no_effect() -> None:
    job = poisoned(overflow(2, OptimizerSpec(lr=1.0, momentum=1.0)), 5, "nan")
    steps = [position for position, operation in enumerate(job.operations) if isinstance(operation, Step)]
    without = replace(job, operations=tuple(op for position, op in enumerate(job.operations) if position != steps[1]))
    skipping, plain = (
        parameters(run, TYPICAL.of_facets("replica").but(skips_nonfinite=skips))
        for run, skips in ((job, True), (without, False))
    )
    for got, expected in zip(skipping, plain, strict=True):
        assert all(np.array_equal(got[name], expected[name]) for name in expected)
