"""A whole training run by the implementation's own loop: its end, and its reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from ddpcheck import assertions
from ddpcheck.causes import randomness, samplers, training
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, ReplicaMethod, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.training import OF_A_REPEATED_EPOCH
from ddpcheck.job import Job, Train
from ddpcheck.oracle.training_runs import Run
from ddpcheck.seeded_values import Array
from ddpcheck.session import Session
from ddpcheck.trace import Trace

from ..drawing import all_or_every_second, for_all, for_each
from ..judges import Judge
from .best_weights import ends_with_the_last, holds_the_best, holds_the_only_finite_epoch
from .drawn_runs import (
    LOOSE,
    OTHER_OPTIMIZERS,
    equal_losses,
    run_job,
    runs,
    with_a_frozen_layer,
    with_huge_losses,
    with_ids,
    with_other_optimizers,
    with_terms,
)
from .final_state import ends_where_one_process_ends
from .judging import of_run
from .learning_rates import rates_follow
from .losses import reports_the_loss

ACCUMULATION = needs.trainer.trainer_features("accumulation")
_SLOW = 2.0**-5
"""A learning rate at which the bounds of about twenty steps stay narrow."""


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"))
def check_training_run_uses_every_sample(session: Session) -> None:
    """In each epoch of a training run, the ranks together use every sample.

    With shuffling, the order changes by epoch and by seed; without it, the order stays the same. Data and initial values do
    not change.
    """
    world = session.world_size
    promised = session.capabilities
    # the probability that 2 epochs of at least 24 samples have the same order is below 1 in 24!, far below 1e-9
    long = st.builds(
        lambda n, seed: run_job(world, promised, n, Train(seed=seed)), st.integers(24, 30), st.integers(0, 99)
    )
    many = run_job(world, promised, 24, Train(epochs=12, batch_size=24, seed=3))
    for_all(session, long, uses_every_sample(promised), examples=[many], share=0.3)
    plans = Train(epochs=1, seed=7), Train(epochs=1, seed=8), Train(shuffle=False)
    for_each(session, [run_job(world, promised, 8 * world + 16, *plans)], _seed_and_shuffle_count(promised))


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"))
def check_training_run_matches_one_process(session: Session) -> None:
    """After a training run, parameters equal those of one process on the same batches and have the same bits on all ranks."""
    world, promised = session.world_size, session.capabilities
    # the largest seed that NumPy's older generators take
    examples = with_other_optimizers(run_job(world, promised, 3 * world, Train(epochs=2, seed=(1 << 32) - 1)), promised)
    plain = examples[0]
    examples += with_a_frozen_layer(plain, promised) + with_ids(plain, promised) + with_terms(plain, promised)
    if promised.has(ReplicaMethod.CLIPPING):
        examples.append(run_job(world, promised, 3 * world, Train(epochs=1, max_norm=LOOSE)))
        # several steps, because one clipped step looks like one of another length
        examples.append(run_job(world, promised, 3 * world, Train(epochs=2, max_norm=0.25)))
    if promised.sampler.remainder == "pad":  # fewer samples than ranks
        examples.append(run_job(world, promised, max(1, world - 1), Train(epochs=2)))
    judge = of_run(promised, ends_where_one_process_ends)
    for_all(session, runs(world, promised), judge, examples=all_or_every_second(session, examples), share=0.5)


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"))
def check_training_run_reports_loss_over_all_samples(session: Session) -> None:
    """On all ranks, the loss of each epoch is the mean over all ranks' samples, auxiliary terms included."""
    world, promised = session.world_size, session.capabilities
    plain = run_job(world, promised, 3 * world, Train(epochs=2))
    examples = with_terms(plain, promised) + with_ids(plain, promised)
    for_all(session, runs(world, promised), of_run(promised, reports_the_loss), examples=examples, share=0.5)


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"), ACCUMULATION)
def check_training_run_with_accumulation_matches_one_process(session: Session) -> None:
    """Every optimizer step of a run uses the gradient of one large batch: exactly the samples of its accumulation window.

    This also holds if micro-batches have different sizes, if an epoch's last window is short, and if gradients are clipped.
    """
    _with_windows(session, ends_where_one_process_ends)


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"), ACCUMULATION)
def check_training_run_with_accumulation_reports_global_loss(session: Session) -> None:
    """With accumulation, the loss of each epoch is the mean over all samples of all micro-batches of all ranks."""
    _with_windows(session, reports_the_loss, share=0.5)


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"), needs.trainer.trainer_features("schedule"))
def check_training_run_applies_its_learning_rate_schedule(session: Session) -> None:
    """Step i of n uses the learning rate at i/n of the schedule, for every world size, on all ranks."""
    promised = session.capabilities
    features = promised.trainer.trainer_features & {"schedule", "accumulation"}
    drawn = runs(session.world_size, promised, features=features)
    for_all(session, drawn, of_run(promised, ends_where_one_process_ends), examples=_scheduled(session), share=0.5)


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"), needs.trainer.trainer_features("schedule"))
def check_training_run_reports_its_learning_rates(session: Session) -> None:
    """A run reports the learning rates that its schedule has for its steps, on all ranks."""
    for_each(session, _scheduled(session), of_run(session.capabilities, rates_follow))


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"), needs.trainer.trainer_features("best"))
def check_best_weights_have_the_lowest_global_loss(session: Session) -> None:
    """The best weights are those at the end of the epoch with the lowest loss over all ranks, on all ranks. The final
    parameters are still those of the last epoch.
    """
    promised, world = session.capabilities, session.world_size
    many = [
        run_job(world, promised, 3 * world, Train(epochs=5, batch_size=2, seed=seed, keep_best=True), seed=seed, lr=1.0)
        for seed in range(3)
    ]
    plan = Train(epochs=5, batch_size=2, keep_best=True)
    many.append(run_job(world, promised, 3 * world, plan, lr=2.0**-14))  # losses that are nearly equal
    many += _best_among_others(session)
    many += with_a_frozen_layer(many[0], promised)
    many += equal_losses(world, promised, Train(epochs=3, batch_size=2, keep_best=True))
    many += with_huge_losses(many[0], promised)
    if "early_stopping" in promised.trainer.trainer_features:  # the last epoch of a run that ends early is not the best
        plans = (Train(epochs=8, seed=seed, patience=patience, keep_best=True) for seed, patience in ((0, 1), (1, 2)))
        many += [run_job(world, promised, 3 * world, each, seed=each.seed, lr=1.0) for each in plans]
    # few steps, so that rounding allows little, though the first epoch is the best
    many.append(run_job(world, promised, 2 * world, Train(epochs=3, batch_size=4, keep_best=True), lr=2.0))
    features = frozenset({"best"})
    judge = of_run(promised, holds_the_best, ends_where_one_process_ends, ends_with_the_last)
    for_all(
        session, runs(world, promised, features=features), judge, examples=all_or_every_second(session, many), share=0.3
    )
    plan = Train(epochs=4, batch_size=3, keep_best=True)
    for_each(
        session, [run_job(world, promised, 3 * world, plan, lr=1e200)], of_run(promised, holds_the_only_finite_epoch)
    )


def _with_windows(session: Session, judge: Callable[[Run], None], share: float = 1.0) -> None:
    world, promised = session.world_size, session.capabilities
    norm = 0.25 if promised.has(ReplicaMethod.CLIPPING) else None
    # last, because an epoch with one window does not show whether a step is too long, or taken twice
    one = run_job(world, promised, 4 * world, Train(batch_size=3, micro_batches=2, epochs=1))
    two = run_job(world, promised, 8 * world, Train(batch_size=2, micro_batches=2, epochs=1, max_norm=norm))
    many = run_job(world, promised, 5 * world, Train(batch_size=1, micro_batches=2, epochs=6), lr=_SLOW)
    short = run_job(world, promised, 10 * world, Train(batch_size=2, micro_batches=2, epochs=1, max_norm=norm))
    examples = [many, two, short, one, *with_other_optimizers(two, promised), *with_terms(one, promised)]
    examples += with_a_frozen_layer(one, promised) + with_ids(one, promised)
    drawn = runs(world, promised, features=frozenset({"accumulation"}))
    for_all(session, drawn, of_run(promised, judge), examples=all_or_every_second(session, examples), share=share)


def _best_among_others(session: Session) -> list[Job]:
    """The best weights with a schedule, and with short last windows, if promised.

    Learning rates are so large that an early epoch is the best.
    """
    world, promised = session.world_size, session.capabilities
    plan = Train(epochs=5, batch_size=1, keep_best=True)
    ways = {"schedule": (replace(plan, schedule="linear"), 2.0), "accumulation": (replace(plan, micro_batches=2), 1.0)}
    offered = [way for feature, way in ways.items() if feature in promised.trainer.trainer_features]
    return [
        run_job(world, promised, 3 * world, replace(each, seed=seed), seed=seed, lr=lr)
        for each, lr in offered
        for seed in range(2)
    ]


def _scheduled(session: Session) -> list[Job]:
    """Ranks with shards of different lengths, if promised; and weight decay, which follows the schedule."""
    world, promised = session.world_size, session.capabilities
    counts = (1, 2) if "accumulation" in promised.trainer.trainer_features else (1,)
    plans = [Train(batch_size=1, schedule="linear", micro_batches=count) for count in counts]
    made = [run_job(world, promised, 4 * world + 1, plan) for plan in plans]
    return [*made, replace(made[0], optimizer=OTHER_OPTIMIZERS[0])]


def _seed_and_shuffle_count(promised: Capabilities) -> Judge:
    """A judge: orders follow the seed, and stay the same without shuffling."""

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        one, other, plain = (
            [[epoch.tolist() for epoch in rank] for rank in trace.values(at, "indices")] for at in range(3)
        )
        assertions.that(
            one != other or not promised.sampler.shuffles,
            "two shuffled runs with the seeds 7 and 8 used the samples in the same order on all ranks, but should differ",
            randomness.SEED_IGNORED(),
        )
        for rank, (first, second) in enumerate(plain):
            assertions.that(
                first == second,
                f"a run without shuffling used other samples, or in another order, in epoch 1 than in epoch 0 on rank {rank}, "
                "but should use them alike",
                samplers.SHUFFLED_UNASKED(),
            )

    return judge


def uses_every_sample(promised: Capabilities) -> Judge:
    """The judge of a Job with one training run that shuffles."""

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        for rank, changed in enumerate(trace.values(0, "arguments_changed")):
            assertions.that(
                not changed,
                f"a training run changed {', '.join(changed)} of its task on rank {rank}, but should leave its arguments alone",
                training.samples.ARGUMENTS_CHANGED_BY_RUN(),
            )
        epochs = list(zip(*trace.values(0, "indices"), strict=True))
        for number, ranks in enumerate(epochs):
            _all_used(job, promised, number, np.concatenate(ranks))
        if promised.sampler.shuffles:
            _shuffled(epochs)

    return judge


def _all_used(job: Job, promised: Capabilities, number: int, used: Array) -> None:
    assert job.data is not None
    count, remainder = job.data.samples, promised.sampler.remainder
    left = sorted(set(range(count)) - set(used.tolist()))
    assertions.that(
        len(left) <= (count % job.world_size if remainder == "drop" else 0),
        f"epoch {number}: got {len(left)} of {count} samples that no rank used, the first {left[:3]}, but should be none",
        training.samples.SHARDS_OVERLAP_OR_TAIL_LOST(),
    )
    assertions.that(
        len(used) <= count + (job.world_size - 1 if remainder == "pad" else 0),
        f"epoch {number}: the ranks together used {len(used)} samples, but should use {count}",
        training.samples.RUN_NOT_SHARDED(),
    )


def _shuffled(epochs: Sequence[tuple[Array, ...]]) -> None:
    for number, ranks in enumerate(epochs):
        assertions.that(
            any((np.diff(rank) < 0).any() for rank in ranks),
            f"epoch {number} of a shuffled run used the samples of each rank in ascending order, but should shuffle them",
            samplers.SHUFFLE_IGNORED(),
        )
    orders = [np.concatenate(ranks).tobytes() for ranks in epochs]
    again = next((number for number, order in enumerate(orders) if order in orders[:number]), 0)
    assertions.that(
        not again,
        f"epochs {orders.index(orders[again])} and {again} of a shuffled run used the samples in the same order on all ranks, "
        "but should differ",
        first_cause(OF_A_REPEATED_EPOCH, again),
    )
