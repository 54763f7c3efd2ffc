"""Where ranks mix up their parameters, Jobs with a model of one parameter show other mistakes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from in_threads import ThreadedSession

from ddpcheck.causes import Kind, gradients, replicas
from ddpcheck.job import Backward, Job, SetTrainable, ZeroGrad
from ddpcheck.models.spec import Activation, BatchNorm, Linear, ModelSpec, mlp
from ddpcheck.verdict import Finding
from ddpcheck_implementations.faulty import PlainReplica, faults
from ddpcheck_implementations.faulty.base import PROMISED, facets
from ddpcheck_properties import CHECKS
from ddpcheck_properties.one_parameter import MIXED_UP, NOTE, with_one_parameter
from ddpcheck_properties.strategies import shards, training_job

CHECK = {check.name: check for check in CHECKS}
PLAIN = mlp((2, 3, 4), loss="linear")


def job_of(model: ModelSpec, *operations: Any) -> Job:
    return training_job(2, model, [Backward(shards([2, 2])), *operations])


def test_a_plain_model_becomes_one_weight() -> None:
    job = job_of(PLAIN)
    made = with_one_parameter(job)
    assert made is not None
    assert made.model is not None
    assert [tensor.shape for tensor in made.model.tensors()] == [(4, 2)]
    assert (made.model.loss, made.operations, made.data) == ("linear", job.operations, job.data)
    assert with_one_parameter(made) is None, "there is nothing to leave out"


@pytest.mark.parametrize(
    "job",
    [
        job_of(ModelSpec((Linear("fc1", 2, 3), BatchNorm("norm", 3), Linear("fc2", 3, 2)))),
        job_of(ModelSpec((Linear("fc1", 2, 3, frozen=True), Activation("relu"), Linear("fc2", 3, 2)))),
        job_of(PLAIN, ZeroGrad(), SetTrainable(("fc2",), trainable=False)),
    ],
    ids=["special layer", "frozen", "named"],
)
def test_models_that_a_check_needs_are_kept(job: Job) -> None:
    assert with_one_parameter(job) is None


class ReversedOnOneRank(PlainReplica):
    """Rank 1 reduces its parameters in reverse order."""

    def used_somewhere(self) -> list[str]:
        names = super().used_somewhere()
        return names[::-1] if self.rank == 1 else names


@pytest.mark.parametrize(
    ("fault", "check", "told"),
    [
        ("inner-exception-ends-the-outer-window", "check_exception_inside_no_sync_restores_synchronisation",
         replicas.NO_SYNC_LEFT_BY_EXCEPTION),
        ("long-window-starts-over", "check_accumulation_counts_every_micro_batch_once", gradients.LAST_MICRO_BATCH_ONLY),
    ],
)  # fmt: skip
def test_ranks_with_another_order_of_parameters_hide_no_other_mistake(fault: str, check: str, told: Kind) -> None:
    made = next(each.made for each in faults() if each.name == fault)
    for replica, expected in ((type("Both", (ReversedOnOneRank, made), {}), told), (ReversedOnOneRank, None)):
        session = ThreadedSession(partial(facets, replica), 2, PROMISED, told=MIXED_UP)
        with pytest.raises(Finding) as caught:
            CHECK[check].function(session)
        first = caught.value.diagnosis.cause
        assert first is not None
        assert (first.id == told.id) is (expected is told)
        assert any(NOTE in detail for detail in caught.value.diagnosis.details) is (expected is told)
