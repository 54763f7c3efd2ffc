"""What is wrong in some steps of a training run only: where it would have ended, to tell when and what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from .drawn_runs import Run
from .emulated import Place, emulate
from .emulated_steps import Arrays
from .gone_wrong import Factor, Rules, law_factor
from .nearest import nearest

Where = Callable[[Place], bool]
_MOST = 12
"""Steps that are tried one by one."""
_BATCHES, _LEAST = 8000, 100
"""So many batches are emulated at most, as a long run would take long; but so many runs in any case."""
_RANKS = 4
"""Ranks that are, too, and early epochs from which on something may be wrong."""


_USUAL = 0.9
"""The momentum that many loops have if nobody sets one."""


def in_part(run: Run, got: Arrays, law: Arrays) -> str:
    """What happens in which steps if the run ended here, in words; empty if nothing of what is known does."""
    batches = sum(-(-len(rank) // run.plan.batch_size) for ranks in run.indices for rank in ranks[:1])
    pairs = ((when, where, what) for when, where in _places(run) for what in _what(run))
    tried = (
        (f"{when}: {words}", emulate(run, rules, where).ends[-1])
        for when, where, (words, rules) in islice(pairs, max(_LEAST, _BATCHES // max(1, batches)))
    )
    return next((words for words, ends in tried if nearest(got, law, [(words, ends)])), "")


def _places(run: Run) -> Iterator[tuple[str, Where]]:
    """The most general first; a place that is none of the run's, or all of it, shows nothing, or what is known."""
    plan = run.plan
    yield "in every step", lambda at: True
    if run.first:
        yield "in the epochs after resuming", lambda at: at.epoch >= run.first
        yield "in the epochs before resuming", lambda at: at.epoch < run.first
    yield "in all epochs but the first", lambda at: at.epoch > 0
    yield "in the first epoch only", lambda at: at.epoch == 0
    for epoch in range(2, min(_RANKS, run.plan.epochs)):
        yield f"from epoch {epoch} on", _from(epoch)
    yield "in the first step of every epoch", lambda at: at.number == 0
    yield "in the first step of every epoch after the first", lambda at: at.number == 0 and at.epoch > 0
    yield "in the last step of every epoch", lambda at: at.number == at.windows - 1
    if plan.batch_size > 1:
        yield "in steps with a batch of fewer samples than others", _has_short_batch
    if plan.micro_batches > 1:
        yield "in an epoch's short last window", lambda at: len(at.window) < plan.micro_batches
        yield "in windows that are not short", lambda at: len(at.window) == plan.micro_batches
    yield "in every second step, from the first on", lambda at: at.step % 2 == 0
    yield "in every second step, from the second on", lambda at: at.step % 2 == 1
    for begin, name in enumerate(("first", "second", "third")):
        yield f"in every third step, from the {name} on", _third(begin)
    for epoch in range(1, min(_MOST, plan.epochs)):
        yield f"in epoch {epoch} only", _of_epoch(epoch)
    for number in range(min(_MOST, len(run.schedule))):
        yield f"in step {number} only", _only(number)


def _from(epoch: int) -> Where:
    return lambda at: at.epoch >= epoch


def _of_epoch(epoch: int) -> Where:
    return lambda at: at.epoch == epoch


def _third(begin: int) -> Where:
    return lambda at: at.step % 3 == begin


def _only(number: int) -> Where:
    return lambda at: at.step == number


def _has_short_batch(at: Place) -> bool:
    return any(len(rank) < at.plan.batch_size for rank in at.window[-1])


def _what(run: Run) -> Iterator[tuple[str, Rules]]:
    world, spec = run.job.world_size, run.job.optimizer
    yield "parameters are not updated", Rules(skipped=True)
    if run.plan.schedule == "linear":
        for later, whose in ((-1, "step before: the one that was set before the schedule's step"), (1, "next step")):
            yield f"the learning rate is that of the {whose}", Rules(factor=_moved(run, later))
    if world > 1:
        yield f"gradients are {world} x too large: summed over the ranks", Rules(times=world)
        yield f"gradients are {world} x too small: divided by the world size once more", Rules(times=1 / world)
    if run.plan.micro_batches > 1:
        yield "the micro-batches' gradients are added up, and not averaged", Rules(weights="sum")
        yield "a short last window is divided by the micro-batches of a full one", Rules(weights="full")
        yield "of a window only the last micro-batch's gradient is left", Rules(weights="last")
    if spec.weight_decay:
        yield "weight decay is missing", Rules(optimizer={"weight_decay": 0.0})
    if spec.name == "sgd" and spec.momentum != _USUAL:
        yield f"momentum is {_USUAL}", Rules(optimizer={"momentum": _USUAL})
    if spec.momentum:
        yield "momentum is missing", Rules(optimizer={"momentum": 0.0})
        yield "momentum is not taken on to the next step", Rules(stays=True)
    if run.plan.max_norm is not None:
        yield "gradients are not clipped", Rules(clip="never")
    if spec.momentum or spec.weight_decay or spec.name == "adam":  # else it is as one of twice the length
        yield "the step is taken twice", Rules(again="every")
    yield "the step is twice as long as it should be, or taken twice", Rules(factor=_times(run, 2.0))
    yield "the step is half as long as it should be", Rules(factor=_times(run, 0.5))
    for rank in range(min(world, _RANKS)) if world > 1 else ():
        yield f"the gradient of rank {rank} is missing", Rules(parts={rank: 0.0})
        yield f"the gradient of rank {rank} counts twice", Rules(parts={rank: 2.0})
    yield "gradients are 2 x too large", Rules(times=2.0)
    yield "gradients are zero", Rules(times=0.0)
    yield from _of_batches(run)
    for dtype in ("float16", "float32") if world > 1 else ():
        yield f"gradients are sent in {dtype}", Rules(wire=dtype)
    if run.plan.micro_batches > 1 and world > 1:
        for rank in range(min(world, _RANKS)):
            yield f"micro-batches weigh equally on rank {rank}", Rules(weights="equal", only=rank)
            yield f"micro-batches are added up, and not averaged, on rank {rank}", Rules(weights="sum", only=rank)


def _of_batches(run: Run) -> Iterator[tuple[str, Rules]]:
    """What may be wrong with the samples of a batch."""
    for dtype in ("float16", "float32"):
        yield f"the inputs of a batch are rounded to {dtype}", Rules(rounded=dtype)
    if run.plan.batch_size > 1:
        yield "targets are those of the sample before in the batch", Rules(turned=1)
        yield "a batch's last sample is left out", Rules(rows="but last")
        yield "a batch's first sample is there again in place of its last", Rules(rows="first twice")
        yield "a short last batch is filled up with samples of the epoch's first", Rules(rows="filled")


def _moved(run: Run, later: int) -> Factor:
    return lambda i, n: law_factor(run.plan, max(0, i + later), n)


def _times(run: Run, times: float) -> Factor:
    return lambda i, n: times * law_factor(run.plan, i, n)
