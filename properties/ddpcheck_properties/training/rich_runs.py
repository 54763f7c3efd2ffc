"""Training runs with many features at once show mistakes where two features meet.

A seed chooses features, models and optimizers, so that each pair of them meets in one of a few runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, ReplicaMethod, needs
from ddpcheck.job import DataSpec, Job, Train
from ddpcheck.oracle.training_runs import plan_of

from ..drawing import all_or_every_second, for_all
from ..explicit_examples import fitting
from ..judges import Judge
from ..replicas.rich_programs import drawn_feature, rich_model, slow_optimizer
from ..strategies import SEEDS
from .best_weights import holds_the_best
from .checkpoints import cut_operations, resumed_right
from .final_state import ends_where_one_process_ends
from .judging import of_run
from .learning_rates import rates_follow
from .losses import reports_the_loss

if TYPE_CHECKING:
    from ddpcheck.session import Session
    from ddpcheck.trace import Trace

ALWAYS = (189, 467, 107, 118, 23, 294, 551, 533, 249, 171, 138)
"""Seeds of the runs that come first: these contain all pairs of features that occur in the first 600 runs."""


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"))
def check_training_runs_with_many_features_match_one_process(session: Session) -> None:
    """A run with many layer kinds and promised features ends where one process ends, including best weights, losses and
    learning rates. So does a run that is interrupted and resumed.
    """
    world, promised = session.world_size, session.capabilities
    examples = all_or_every_second(session, fitting(session, [rich_run(world, promised, seed) for seed in ALWAYS]))
    drawn = SEEDS.map(lambda seed: rich_run(world, promised, seed)) if examples else st.nothing()
    for_all(session, drawn, _judge(promised), examples=examples, shorter=without_one_feature, share=0.1)


def rich_run(world: int, promised: Capabilities, seed: int) -> Job:
    """A run, or the same run whole, interrupted, and resumed."""
    choices = Random(seed)
    has = partial(drawn_feature, choices, promised.trainer.trainer_features)
    in_chains = promised.but(model_features=promised.replica.model_features - {"branch", "batch_norm"})
    model = rich_model(choices, in_chains)
    # bounds of many steps are wide in float32
    dtype = "float64" if "float64" in promised.replica.replica_dtypes else model.dtype
    rounds = choices.randint(1, 4)
    plan = Train(
        epochs=choices.choice((1, 2, 3, 5)),
        batch_size=choices.choice((1, 2, 3, 9)),
        shuffle=choices.random() < 0.7,
        seed=choices.choice((0, 5, (1 << 32) - 1)),
        max_norm=choices.choice((None, 0.1, 2.0)) if promised.has(ReplicaMethod.CLIPPING) else None,
        micro_batches=choices.choice((2, 3)) if has("accumulation") else 1,
        schedule="linear" if has("schedule") else "constant",
        keep_best=has("best"),
    )
    few, over = choices.random() < 0.1, choices.choice((0, 0, 1, world - 1))
    samples = world - 1 if few and promised.sampler.remainder == "pad" and world > 1 else rounds * world + over
    job = Job(world, (plan,), model, slow_optimizer(choices, promised), DataSpec(samples, "real", seed), seed)
    job = replace(job, model=replace(model, dtype=dtype, loss_scale=choices.choice((1.0, 2.0))))
    if has("checkpoint") and plan.epochs > 1:
        return replace(job, operations=cut_operations(plan, choices.randint(1, plan.epochs - 1)))
    return replace(job, operations=(replace(plan, patience=choices.choice((1, 2)) if has("early_stopping") else None),))


_WITHOUT_FEATURES: dict[str, Any] = {
    "patience": None,
    "keep_best": False,
    "schedule": "constant",
    "micro_batches": 1,
    "max_norm": None,
    "shuffle": True,
    "seed": 0,
}


def without_one_feature(job: Job) -> Iterator[Job]:
    """The run without one of its features."""
    for name, value in _WITHOUT_FEATURES.items():
        if getattr(plan_of(job), name) != value:
            plans = (plan_of(job, position) for position in range(len(job.operations)))
            yield replace(job, operations=tuple(replace(plan, **{name: value}) for plan in plans))


def _judge(promised: Capabilities) -> Judge:
    usual = [ends_where_one_process_ends, reports_the_loss, rates_follow]

    def judge(job: Job, trace: Trace) -> None:
        if len(job.operations) > 1:
            resumed_right(promised)(job, trace)
        else:
            of_run(promised, *usual, *[holds_the_best] * plan_of(job).keep_best)(job, trace)

    return judge
