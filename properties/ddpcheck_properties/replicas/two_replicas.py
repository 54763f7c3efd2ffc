"""Two replicas in one process, such as a generator and its critic, or a model and its teacher."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

from ddpcheck.causes import replicas as causes
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.job import Job, Operation, Switch
from ddpcheck.operations.replica import of_two_replicas
from ddpcheck.seeded_values import hashed, key_of
from ddpcheck.verdict import Finding

from ..drawing import all_or_every_second, for_all
from ..explicit_examples import fitting
from ..judges import finding_on
from .comparison import as_one_process
from .program_grammar import Word, training_program
from .programs import programs

if TYPE_CHECKING:
    from ddpcheck.session import Session

_WINDOW: tuple[Word, ...] = ("open", "backward", "close", "backward", "step")
_PROGRAMS: tuple[tuple[Word, ...], ...] = (
    ("zero_grad", "backward", "step", "zero_grad", "backward", "clip", "step"),
    (*_WINDOW, "zero_grad", *_WINDOW, "save", "backward", "step", "resume", "backward", "step"),
    ("local", "local", "backward", "step", "zeros", "local", "backward", "step"),
    ("predict_alone", "backward", "step"),
)
_TURNS = (1,), (4, 3)
"""Every operation is followed by an observation, so a turn of two is one operation and its observation."""


@law("programs", needs.replica, needs.replica.several_replicas)
def check_replicas_in_one_process_are_independent(session: Session) -> None:
    """Two replicas that take turns each behave as they would alone. Turns may fall within a step, an accumulation window or
    a backward's synchronisation. Gradients, no_sync windows, optimizers and saved states belong to one replica each.
    """
    world, promised = session.world_size, session.capabilities
    known = [in_turns(training_program(world, promised, words), turns) for words in _PROGRAMS for turns in _TURNS]
    drawn = programs(world, promised).map(in_turns)
    try:
        for_all(
            session,
            drawn,
            as_one_process(promised),
            examples=all_or_every_second(session, fitting(session, known)),
            share=0.3,
        )
    except Finding as finding:
        raise _told_apart(session, finding) from None


def _told_apart(session: Session, finding: Finding) -> Finding:
    """The finding; replicas share state if the program of each passes alone."""
    job = finding.job
    if job is None or finding.hung:
        return finding
    judge = as_one_process(session.capabilities)
    for alone in of_each(job.operations):
        if finding_on(session, replace(job, operations=alone), judge) is not None:
            return finding
    return finding.blaming(causes.REPLICAS_SHARE_STATE(), finding.diagnosis.causes)


def of_each(operations: Sequence[Operation]) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    """The operations of the first replica, and those of the second."""
    first, second = (
        tuple(op for replica, op in of_two_replicas(operations) if replica == wanted and not isinstance(op, Switch))
        for wanted in (0, 1)
    )
    return first, second


def in_turns(job: Job, turns: Sequence[int] = ()) -> Job:
    """The Job's program on two replicas that take turns of this many operations; by default one to four, drawn by the Job's
    seed.
    """
    drawn = (1 + word % 4 for word in hashed(2 * len(job.operations), key_of(job.seed)).tolist())
    return replace(job, operations=tuple(_in_turns(job.operations, cycle(turns) if turns else drawn)))


def _in_turns(operations: Sequence[Operation], turns: Iterable[int]) -> Iterator[Operation]:
    here, other = list(operations), list(operations)
    for turn in turns:
        yield from here[:turn]
        del here[:turn]
        if other:
            yield Switch()
            here, other = other, here
        elif not here:
            return
