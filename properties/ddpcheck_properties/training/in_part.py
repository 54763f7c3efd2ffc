"""What is wrong in some steps of a training run only: where it would have ended, to tell when and what."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .drawn_runs import Run
from .emulated import Place, emulate, nearest
from .emulated_steps import Arrays
from .gone_wrong import Rules

Where = Callable[[Place], bool]
_MOST = 12
"""Steps that are tried one by one."""


def in_part(run: Run, got: Arrays, law: Arrays) -> str:
    """What happens in which steps if the run ended here, in words; empty if nothing of what is known does."""
    tried = (
        (f"{when}: {what}", emulate(run, rules, where).ends[-1])
        for when, where in _places(run)
        for what, rules in _what(run)
    )
    return next((words for words, ends in tried if nearest(got, law, [(words, ends)])), "")


def _places(run: Run) -> Iterator[tuple[str, Where]]:
    """The most general first; a place that is none of the run's, or all of it, shows nothing, or what is known."""
    plan = run.plan
    yield "in every step", lambda at: True
    if run.first:
        yield "in the epochs after resuming", lambda at: at.epoch >= run.first
    yield "in all epochs but the first", lambda at: at.epoch > 0
    yield "in the first epoch only", lambda at: at.epoch == 0
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
    for epoch in range(1, min(_MOST, plan.epochs)):
        yield f"in epoch {epoch} only", _of_epoch(epoch)
    for number in range(min(_MOST, len(run.schedule))):
        yield f"in step {number} only", _only(number)


def _of_epoch(epoch: int) -> Where:
    return lambda at: at.epoch == epoch


def _only(number: int) -> Where:
    return lambda at: at.step == number


def _has_short_batch(at: Place) -> bool:
    return any(len(rank) < at.plan.batch_size for rank in at.window[-1])


def _what(run: Run) -> Iterator[tuple[str, Rules]]:
    world, spec = run.job.world_size, run.job.optimizer
    yield "parameters are not updated", Rules(skipped=True)
    if world > 1:
        yield f"gradients are {world} x too large: summed over the ranks", Rules(times=world)
        yield f"gradients are {world} x too small: divided by the world size once more", Rules(times=1 / world)
    if run.plan.micro_batches > 1:
        yield "the micro-batches' gradients are added up, and not averaged", Rules(weights="sum")
        yield "a short last window is divided by the micro-batches of a full one", Rules(weights="full")
        yield "of a window only the last micro-batch's gradient is left", Rules(weights="last")
    if spec.weight_decay:
        yield "weight decay is missing", Rules(optimizer={"weight_decay": 0.0})
    if spec.momentum:
        yield "momentum is missing", Rules(optimizer={"momentum": 0.0})
        yield "momentum is not taken on to the next step", Rules(stays=True)
    if run.plan.max_norm is not None:
        yield "gradients are not clipped", Rules(clip="never")
