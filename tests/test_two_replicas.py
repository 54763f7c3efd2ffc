"""Programs on two replicas in turns: their operations, and the oracle's results for each."""

from __future__ import annotations

import numpy as np
import pytest
from oracle_jobs import PROMISED, moments

from ddpcheck.job import Backward, CloseWindow, Job, Observe, OpenWindow, Step, Switch, ZeroGrad
from ddpcheck.models.spec import mlp
from ddpcheck_properties.replicas.comparison import when
from ddpcheck_properties.replicas.program_grammar import program_text, training_program
from ddpcheck_properties.replicas.two_replicas import in_turns, of_each
from ddpcheck_properties.strategies import shards

WORDS = ("open", "backward", "close", "backward", "step", "backward", "clip", "step")


def program(seed: int) -> Job:
    return training_program(2, PROMISED, WORDS, seed=seed)


@pytest.mark.parametrize("seed", range(20))
def test_both_replicas_run_the_whole_program_in_turns(seed: int) -> None:
    job = program(seed)
    both = in_turns(job)
    assert of_each(both.operations) == (job.operations, job.operations)
    assert sum(isinstance(operation, Switch) for operation in both.operations) > 3
    assert not isinstance(both.operations[-1], Switch)


def test_oracle_runs_each_replica_separately() -> None:
    job = program(1)
    first, second = ([m for m in moments(alone) if m.arrays] for alone in (job, job.of_second()))
    here, other = list(first), list(second)
    for moment in moments(in_turns(job)):
        if isinstance(moment.operation, Switch):
            here, other = other, here
        elif moment.arrays:
            for what, entries in here.pop(0).arrays.items():
                for name, entry in entries.items():
                    np.testing.assert_array_equal(moment.arrays[what][name].value.exact, entry.value.exact)
    assert not here
    assert not other
    weights = [told[0].arrays["parameters"]["fc1.weight"].value.exact for told in (first, second)]
    assert (weights[0] != weights[1]).all()


def test_windows_belong_to_a_replica_and_so_does_what_is_counted() -> None:
    backward, look = Backward(shards([1])), Observe(("gradients",))
    program = [OpenWindow(), backward, Switch(), ZeroGrad(), backward, look, Step(), Switch(), CloseWindow(), look]
    job = Job(1, tuple(program), mlp((1, 1)), data=training_program(1, PROMISED, ("backward",)).data)
    assert when(job, 5) == "operation 5, one of two replicas, after 1 backward and 0 steps"
    assert when(job, 9) == "operation 9, one of two replicas, after 1 backward and 0 steps"
    assert when(job, 1) == "operation 1, after 1 backward and 0 steps"
    with pytest.raises(ValueError, match=r"operation 3 \(close_window\): no window is open"):
        Job(1, (OpenWindow(), backward, Switch(), CloseWindow()), mlp((1, 1)), data=job.data)
    with pytest.raises(ValueError, match="still open at the end"):
        Job(1, (OpenWindow(), backward, Switch()), mlp((1, 1)), data=job.data)


def test_a_long_program_is_told_by_its_last_operations() -> None:
    short = (Backward(((0,),)), Step(), Observe(("parameters",)))
    assert program_text(short) == "backward, step"
    told = program_text((*short * 10, ZeroGrad()))
    assert told == "21 operations; the last: step, backward, step, backward, step, zero_grad"
