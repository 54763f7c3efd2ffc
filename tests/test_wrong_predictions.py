"""The causes of a wrong prediction."""

from __future__ import annotations

import numpy as np
import pytest

from ddpcheck import Job, RankTrace, Trace
from ddpcheck.causes import programs, values
from ddpcheck.job import DataSpec, Predict
from ddpcheck.models.spec import BatchNorm, Layer, Linear, ModelSpec
from ddpcheck.oracle import ExpectedOperation
from ddpcheck.oracle.bounded_values import Value
from ddpcheck.trace import Record
from ddpcheck.verdict import Finding
from ddpcheck_properties.replicas.comparison import compare

RIGHT = np.array([[1.25, 2.71828]])
PREDICT = Predict(((0,),))


@pytest.mark.parametrize(
    ("layers", "cause"),
    [
        ((Linear("fc", 3, 2),), values.FEWER_BITS.id),
        ((Linear("fc", 3, 2), BatchNorm("norm", 2)), programs.WRONG_PREDICTION_VALUES.id),
    ],
    ids=["linear", "batch-norm"],
)
def test_nearly_right_prediction_shows_few_bits_only_without_running_statistics(
    layers: tuple[Layer, ...], cause: str
) -> None:
    job = Job(1, (PREDICT,), model=ModelSpec(layers), data=DataSpec(1))
    got = (RIGHT * [[1.001, 0.9993]]).astype(np.float32)
    trace = Trace((RankTrace(0, "done", (Record(0, "predict", 0.0, 1.0, {"outputs": got}),)),))
    moment = ExpectedOperation(0, PREDICT, outputs=(Value(RIGHT, np.full_like(RIGHT, 1e-6)),), promised=(0,))
    with pytest.raises(Finding) as found:
        compare(moment, job, trace)
    assert [each.id for each in found.value.diagnosis.causes[:1]] == [cause]
