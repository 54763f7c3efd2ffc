"""Asynchronous collectives of torch.distributed in training steps: awaited, and their tensors left alone until then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.causes import Cause
from ddpcheck.causes import collectives as causes
from ddpcheck.check_levels import Level
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.job import Job
from ddpcheck.models.spec import mlp
from ddpcheck.operations.probes import WatchCollectives
from ddpcheck.trace import Trace
from ddpcheck.verdict import CannotTell, Diagnosis, Finding

from ..drawing import for_each
from .gradient_probes import PAST_25_MIB, probe_of
from .program_grammar import Word, training_program

if TYPE_CHECKING:
    from ddpcheck.session import Session

_STEPS: tuple[Word, ...] = (
    "zero_grad",
    "backward",
    "step",
    "zero_grad",
    "local",
    "backward",
    "step",
    "zero_grad",
    "backward",
)

_SEVERAL_BUCKETS = mlp((2, 64, 64, 64, 2))
"""Of the smallest size that people choose, some tens of kilobytes."""


@law("gradients", needs.replica, level=Level.BASIC)
def check_collectives_in_flight_are_awaited_and_left_alone(session: Session) -> None:
    """In training steps PyTorch's asynchronous collectives are awaited, and no operation writes to their tensors before, even
    if the values come out right.
    """
    world, promised = session.world_size, session.capabilities
    if not any(session.run(Job(world, (WatchCollectives(),))).values(0, "watched")):
        raise CannotTell("no rank uses torch.distributed")
    steps = training_program(world, promised, _STEPS, _SEVERAL_BUCKETS)
    large = (probe_of(promised, PAST_25_MIB),)  # more than one bucket of the usual size
    operations = (WatchCollectives(), *steps.operations, *large * (world <= 2), WatchCollectives(on=False))
    for_each(session, [Job(world, operations, steps.model, data=steps.data, optimizer=steps.optimizer)], _left_alone)


def _left_alone(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    end = len(job.operations) - 1
    for rank, found in enumerate(trace.values(end, "found")):
        for how, operation, start, line in found:
            begun, seen = _short(start), _short(line)
            if how == "changed":
                headline = f"the tensor of {operation} at {begun} is written to on rank {rank} while it runs, at {seen}"
                cause: Cause = causes.CHANGED_IN_FLIGHT(operation=operation, line=begun, wait=seen)
            else:
                headline = f"the handle of {operation} at {begun} is dropped on rank {rank}"
                cause = causes.HANDLE_NOT_AWAITED(operation=operation, line=begun)
            raise Finding(Diagnosis(headline, (cause,)))


def _short(line: str) -> str:
    """The file's name and the line."""
    return Path(line).name
