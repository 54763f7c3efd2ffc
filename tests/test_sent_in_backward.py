"""A gradient that is not reduced: the bytes sent in its backward tell whether a collective is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpcheck import Session
from ddpcheck.causes import values
from ddpcheck.job import Backward, DataSpec, Job, Observe, ZeroGrad
from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.verdict import Finding
from ddpcheck_properties.drawing import for_each
from ddpcheck_properties.replicas.comparison import as_one_process

OWN = Path(__file__).with_name("own_gradients.py")
BACKWARD = Backward(((0,), (1,)))
JOB = Job(
    2,
    (BACKWARD, ZeroGrad(), BACKWARD, Observe(("gradients",)), ZeroGrad()),
    model=ModelSpec((Linear("fc", 30, 20),), "linear"),
    data=DataSpec(2),
)


@pytest.mark.parametrize(
    ("adapter", "says"),
    [
        ("silent", "no rank sent a byte over TCP in this backward: no collective is called"),
        ("flags", "so some gradients may not be sent"),
        ("other_memory", "so the all-reduce may be called on other memory than the gradients"),
    ],
)
def test_bytes_sent_in_the_backward_tell_whether_a_collective_is_called(adapter: str, says: str) -> None:
    with Session(f"{OWN}:{adapter}", 2) as session, pytest.raises(Finding) as found:
        for_each(session, [JOB], as_one_process(session.capabilities))
    diagnosis = found.value.diagnosis
    assert values.NOT_REDUCED.explains(diagnosis.causes)
    assert says in diagnosis.details[-1]
    assert found.value.job == JOB
