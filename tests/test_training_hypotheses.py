"""Hypotheses about training runs: the cause is named for a run whose result fits it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from in_threads import ThreadedSession

from ddpcheck.causes import Cause, training
from ddpcheck.hypotheses.causes_of_training import causes_of_parameters
from ddpcheck.hypotheses.training.emulation import emulate
from ddpcheck.hypotheses.training.emulation_rules import Rules
from ddpcheck.hypotheses.training.epoch_losses import of_epoch_loss
from ddpcheck.hypotheses.training.final_parameters import OtherEnd, frozen_layer_trained
from ddpcheck.hypotheses.training.some_steps import _wrong
from ddpcheck.hypotheses.training.whole_runs import wrong_rules
from ddpcheck.job import OptimizerSpec, Train
from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.oracle.training_runs import Run
from ddpcheck_implementations.data_parallel.trainer import Trainer
from ddpcheck_implementations.faulty.trainers import PROMISED, facets
from ddpcheck_properties.training.drawn_runs import run_job
from ddpcheck_properties.training.final_state import causes_of_end

WORLD = 3
PLANS = {
    "plain": Train(epochs=2, batch_size=2),
    "windows": Train(epochs=2, batch_size=2, micro_batches=2, max_norm=0.25),
    "schedule": Train(epochs=2, batch_size=2, schedule="linear"),
}
MOMENTUM = OptimizerSpec(lr=0.125, momentum=0.5, weight_decay=0.25)


@pytest.fixture(scope="module", params=PLANS)
def run(request: pytest.FixtureRequest) -> Run:
    """A correct run with 5 samples per rank: the last batch, and the last window, are short."""
    plan = PLANS[request.param]
    job = replace(run_job(WORLD, PROMISED, 5 * WORLD, plan, seed=3), optimizer=MOMENTUM)
    session = ThreadedSession(partial(facets, Trainer), WORLD, PROMISED)
    return Run.told(job, session.run(job), PROMISED)


def hypotheses(run: Run) -> Iterator[tuple[Cause, Rules]]:
    yield from wrong_rules(run.plan, WORLD, len(run.parameters[0]), terms=run.has_terms, uneven=run.uneven)
    yield from _wrong(run)


def test_every_hypothesis_is_told_by_its_own_end(run: Run) -> None:
    law, told = emulate(run).ends[-1], set()
    for cause, rules in hypotheses(run):
        end = emulate(run, rules).ends[-1]
        if max(float(abs(end[name] - law[name]).max()) for name in law) < 1e-6:
            continue  # such a run shows no difference
        wrong = [{name: array[rank] for name, array in end.items()} for rank in range(WORLD)]
        found = causes_of_parameters(replace(run, parameters=wrong))
        assert found, cause
        same = emulate(run, next(rule for known, rule in hypotheses(run) if known == found[0])).ends[-1]
        assert found[0] == cause or all(np.allclose(same[name], end[name], rtol=1e-3) for name in end), (cause, found)
        told.add(found[0].id)
    assert len(told) > 20


@pytest.mark.parametrize(("changed", "told"), [(0.0, False), (2e-16, False), (1e-9, True), (float("nan"), True)])
def test_frozen_layer_is_trained_if_more_than_last_bits_change(changed: float, told: bool) -> None:
    job = run_job(WORLD, PROMISED, 5 * WORLD, PLANS["plain"])
    layers = Linear("fc0", 3, 3, frozen=True), Linear("fc1", 3, 2)
    job = replace(job, model=ModelSpec(layers, "squared_error", dtype="float64"))
    session = ThreadedSession(partial(facets, Trainer), WORLD, PROMISED)
    right = Run.told(job, session.run(job), PROMISED)
    parameters = [{**own, "fc0.weight": own["fc0.weight"] * (1 + changed)} for own in right.parameters]
    found = frozen_layer_trained(OtherEnd(replace(right, parameters=parameters)))
    assert training.steps.FROZEN_LAYER_TRAINED.explains(found) == told


def test_learning_rates_that_are_rounded_are_told() -> None:
    job = run_job(WORLD, PROMISED, 5 * WORLD, Train(epochs=3, batch_size=2, schedule="linear"), lr=0.1)
    session = ThreadedSession(partial(facets, Trainer), WORLD, PROMISED)
    right = Run.told(job, session.run(job), PROMISED)
    schedule = np.array(right.schedule)
    assert not np.array_equal(schedule, schedule.astype(np.float32))
    # no other hypothesis knows these parameters
    parameters = [{name: array + 0.001 for name, array in own.items()} for own in right.parameters]

    def told(rates: list[float]) -> tuple[Cause, ...]:
        return causes_of_end(replace(right, parameters=parameters, rates=[rates] * WORLD))

    rounded = schedule.astype(np.float32).tolist()
    known = (training.schedules.RATE_ROUNDED(dtype="float32", given="float64"),)
    assert told(rounded) == told(rounded[-2:]) == known  # a resumed run reports only the rates of its own epochs
    assert not training.schedules.RATE_ROUNDED.explains(told(schedule.tolist()))
    assert not training.schedules.RATE_ROUNDED.explains(told((schedule / 2).tolist()))


@pytest.mark.parametrize("own", [False, True])
def test_mean_losses_over_samples_are_named_of_all_ranks_and_of_one(run: Run, own: bool) -> None:
    micro = [one for window in emulate(run).losses[0] for one in window]
    ranks = slice(1, 2) if own else slice(None)
    added, count = (sum(float(part[at][ranks].sum()) for part in micro) for at in (0, 1))
    alternatives = of_epoch_loss(run, 0, 1, added / count).alternatives
    named = {cause.id for cause, value in alternatives if np.isclose(value, added / count, rtol=1e-5)}
    assert named == {"epoch-loss-divided-by-samples"}
