"""Hypotheses about mistakes in only some steps of a training run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from ...causes import Cause, training
from ...oracle.training_runs import Run
from .emulation import WindowPosition, emulate
from .emulation_rules import Factor, Rules, law_factor
from .nearest_run import nearest
from .optimizer import Arrays

Where = Callable[[WindowPosition], bool]
_MOST = 12
"""The number of steps that are tried one by one."""
_BATCHES, _LEAST = 8000, 100
"""The most batches that are emulated, because a long run takes long; but at least this many runs."""
_RANKS = 4
"""The most ranks, and early epochs, that are tried one by one."""
_USUAL_MOMENTUM = 0.9
"""The momentum of many training loops that do not set one."""
_EVERY_STEP = ""


def wrong_in_some_steps(run: Run, got: Arrays, law: Arrays) -> tuple[Cause, ...]:
    """The mistake and its steps, if a run by these rules ends here; empty if no known one does."""
    batches = sum(-(-len(rank) // run.plan.batch_size) for ranks in run.indices for rank in ranks[:1])
    pairs = ((steps, where, what) for steps, where in _positions(run) for what in _wrong(run))
    for steps, where, (cause, rules) in islice(pairs, max(_LEAST, _BATCHES // max(1, batches))):
        if nearest(got, law, [(cause, emulate(run, rules, where).ends[-1])]):
            return (cause, training.steps.WRONG_IN_SOME_STEPS(steps=steps)) if steps else (cause,)
    return ()


def _positions(run: Run) -> Iterator[tuple[str, Where]]:
    """Steps as a phrase and as a condition, the most general first. A condition without any step matches nothing."""
    plan = run.plan
    yield _EVERY_STEP, lambda at: True
    if run.first:
        yield "epochs after the resume", lambda at: at.epoch >= run.first
        yield "epochs before the resume", lambda at: at.epoch < run.first
    yield "epochs after the first", lambda at: at.epoch > 0
    yield "the first epoch", lambda at: at.epoch == 0
    for epoch in range(2, min(_RANKS, plan.epochs)):
        yield f"epoch {epoch} and later", _from(epoch)
    yield "the first step of every epoch", lambda at: at.number == 0
    yield "the first step of every epoch after the first", lambda at: at.number == 0 and at.epoch > 0
    yield "the last step of every epoch", lambda at: at.number == at.windows - 1
    if plan.batch_size > 1:
        yield "steps with a short batch", _has_short_batch
    if plan.micro_batches > 1:
        yield "the short last window of an epoch", lambda at: len(at.window) < plan.micro_batches
        yield "full windows", lambda at: len(at.window) == plan.micro_batches
    yield "every second step, from the first", lambda at: at.step % 2 == 0
    yield "every second step, from the second", lambda at: at.step % 2 == 1
    for begin, name in enumerate(("first", "second", "third")):
        yield f"every third step, from the {name}", _third(begin)
    for epoch in range(1, min(_MOST, plan.epochs)):
        yield f"epoch {epoch}", _of_epoch(epoch)
    for number in range(min(_MOST, len(run.schedule))):
        yield f"step {number}", _only(number)


def _from(epoch: int) -> Where:
    return lambda at: at.epoch >= epoch


def _of_epoch(epoch: int) -> Where:
    return lambda at: at.epoch == epoch


def _third(begin: int) -> Where:
    return lambda at: at.step % 3 == begin


def _only(number: int) -> Where:
    return lambda at: at.step == number


def _has_short_batch(at: WindowPosition) -> bool:
    return any(len(rank) < at.plan.batch_size for rank in at.window[-1])


def _wrong(run: Run) -> Iterator[tuple[Cause, Rules]]:
    world, spec = run.job.world_size, run.job.optimizer
    yield training.steps.PARAMETERS_NOT_STEPPED(), Rules(skipped=True)
    if run.plan.schedule == "linear":
        yield training.schedules.RATE_OF_STEP_BEFORE(), Rules(factor=_moved(run, -1))
        yield training.schedules.RATE_OF_NEXT_STEP(), Rules(factor=_moved(run, 1))
    if world > 1:
        yield training.steps.GRADIENTS_SUMMED_OVER_RANKS(world_size=world), Rules(times=world)
        yield training.steps.GRADIENTS_DIVIDED_AGAIN(world_size=world), Rules(times=1 / world)
    if run.plan.micro_batches > 1:
        yield training.steps.MICRO_BATCHES_SUMMED(), Rules(weights="sum")
        yield training.steps.SHORT_WINDOW_DIVIDED_AS_FULL(), Rules(weights="full")
        yield training.steps.LAST_MICRO_BATCH_ONLY(), Rules(weights="last")
    if spec.weight_decay:
        yield training.steps.DECAY_MISSING(), Rules(optimizer={"weight_decay": 0.0})
    if spec.name == "sgd" and spec.momentum != _USUAL_MOMENTUM:
        yield training.steps.MOMENTUM_USUAL(momentum=_USUAL_MOMENTUM), Rules(optimizer={"momentum": _USUAL_MOMENTUM})
    if spec.momentum:
        yield training.steps.MOMENTUM_ABSENT(), Rules(optimizer={"momentum": 0.0})
        yield training.steps.MOMENTUM_NOT_CARRIED(), Rules(stays=True)
    if run.plan.max_norm is not None:
        yield training.steps.RUN_NOT_CLIPPED(), Rules(clip="never")
    if spec.momentum or spec.weight_decay or spec.name == "adam":  # otherwise it equals a step of twice the length
        yield training.steps.EVERY_STEP_TWICE(), Rules(again="every")
    yield training.steps.STEP_TWICE_AS_LONG(), Rules(factor=_times(run, 2.0))
    yield training.steps.STEP_HALF_AS_LONG(), Rules(factor=_times(run, 0.5))
    for rank in range(min(world, _RANKS)) if world > 1 else ():
        yield training.steps.GRADIENT_OF_RANK_MISSING(rank=rank), Rules(parts={rank: 0.0})
        yield training.steps.GRADIENT_OF_RANK_TWICE(rank=rank), Rules(parts={rank: 2.0})
    yield training.steps.GRADIENTS_DOUBLED(), Rules(times=2.0)
    yield training.steps.GRADIENTS_ZERO(), Rules(times=0.0)
    yield from _wrong_batches(run)
    for dtype in ("float16", "float32") if world > 1 else ():
        yield training.steps.GRADIENTS_SENT_NARROW(dtype=dtype), Rules(wire=dtype)
    if run.plan.micro_batches > 1 and world > 1:
        for rank in range(min(world, _RANKS)):
            yield training.steps.MICRO_BATCHES_EQUAL_ON_RANK(rank=rank), Rules(weights="equal", only=rank)
            yield training.steps.MICRO_BATCHES_SUMMED_ON_RANK(rank=rank), Rules(weights="sum", only=rank)


def _wrong_batches(run: Run) -> Iterator[tuple[Cause, Rules]]:
    for dtype in ("float16", "float32"):
        yield training.steps.INPUTS_ROUNDED(dtype=dtype), Rules(rounded=dtype)
    if run.plan.batch_size > 1:
        yield training.steps.TARGETS_OF_SAMPLE_BEFORE(), Rules(turned=1)
        yield training.steps.LAST_SAMPLE_LEFT_OUT(), Rules(rows="but last")
        yield training.steps.FIRST_SAMPLE_REPEATED(), Rules(rows="first twice")
        yield training.steps.SHORT_BATCH_FILLED(), Rules(rows="filled")


def _moved(run: Run, later: int) -> Factor:
    return lambda i, n: law_factor(run.plan, max(0, i + later), n)


def _times(run: Run, times: float) -> Factor:
    return lambda i, n: times * law_factor(run.plan, i, n)
