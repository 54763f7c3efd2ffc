"""Random training programs: any legal sequence of operations gives the results of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, needs
from ddpcheck.job import Job
from ddpcheck.models.spec import Activation, Linear, ModelSpec
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import all_or_every_second, for_all, within_promises
from ..explicit_examples import fitting
from ..judges import Judge
from ..strategies import ADAM, SEEDS, branching, branching_models, choice, models, optimizers
from .comparison import as_one_process, ended_inside
from .program_grammar import WORDS, Word, program_text, training_program
from .shown_values import by_shown_values

if TYPE_CHECKING:
    from ddpcheck.session import Session

LONGEST = 14
Words = tuple[Word, ...]
Make = Callable[[Words, bool], Job]
"""Makes the Job of a program; the second argument says whether it is observed after every operation."""
BRANCHES_TAKEN: tuple[Callable[[tuple[str, ...]], tuple[tuple[str, ...], ...]], ...] = (
    lambda names: (names,),
    lambda names: (names, ()),
    lambda names: ((), names[:1]),
    lambda names: (names[:1], names[1:]),
)
"""The branches that are taken, in turn (training_program)."""


@law("programs", needs.replica)
def check_random_training_programs_match_one_process(session: Session) -> None:
    """Any legal sequence of operations gives every rank the results of one process after every operation.

    Operations: backward, no_sync, step, both forms of zero_grad, clip, predict, save, resume, freeze, unfreeze, other batch
    sizes and new epochs. Half of the programs are observed only at their end, so that observing cannot repair anything.
    """
    world, promised = session.world_size, session.capabilities
    frozen = ModelSpec((Linear("fc1", 2, 3, frozen=True), Activation("tanh"), Linear("fc2", 3, 3), Linear("fc3", 3, 2)))

    def program(words: Words, looking: bool) -> Job:
        job = training_program(world, promised, words, frozen if "unfreeze" in words else None, looking=looking)
        return within_promises(job, promised)

    written = WrittenPrograms()
    examples = [written.job(program, words) for words in REGRESSIONS]
    examples.append(written.job(program, EMPTY_WINDOW, looking=False))
    if "branch" in promised.replica.model_features and promised.replica.unused_parameters == "synchronised":
        examples += [make(world, promised) for make in (_used_after_resuming, _counted_apart, _coming_and_going)]
    examples = all_or_every_second(session, fitting(session, examples))
    judge = telling(as_one_process(promised))
    drawn = programs(world, promised)
    further = by_shown_values(session)
    for_all(session, drawn, judge, examples=examples, shorter=written.shorter, share=1.5, further=further)


def telling(judge: Judge) -> Judge:
    """A judge whose findings also show the program. The last one is about the shortest program, which has no operation that
    it does not need.
    """

    def told(job: Job, trace: Trace) -> None:
        try:
            judge(job, trace)
        except Finding as finding:
            raise ended_inside(finding).noting(f"shown by: {program_text(job.operations)}") from None

    return told


class WrittenPrograms:
    """Jobs that were made of words, from which shorter and clearer ones can be made."""

    def __init__(self) -> None:
        self._made: dict[Job, tuple[Make, Words, bool]] = {}

    def job(self, make: Make, words: Words, looking: bool = True) -> Job:
        """The Job of these words. looking: observed after every operation, not only at the end."""
        made = make(words, looking)
        self._made[made] = make, words, looking
        return made

    def shorter(self, job: Job) -> Iterator[Job]:
        """Programs without one of their words, the last ones first."""
        if job in self._made:
            make, words, looking = self._made[job]
            for left_out in reversed(range(len(words))):
                yield self.job(make, words[:left_out] + words[left_out + 1 :], looking)

    def clearer(self, job: Job) -> Iterator[Job]:
        """The same programs, observed after every operation."""
        if job in self._made:
            make, words, _ = self._made[job]
            yield self.job(make, words)


_STEP: tuple[Word, ...] = ("zero_grad", "backward", "step")

REGRESSIONS: tuple[Words, ...] = (
    ("backward", "step", "backward", "step"),  # no zero_grad: the second step uses both gradients
    ("backward", "step", "local", "backward", "clip", "step"),
    ("local", "zero_grad", "local", "backward", "clip", "step", "backward", "step"),
    ("local", "save", "predict_alone", "backward", "step", "resume", "backward", "step", "resume", "backward", "step"),
    ("backward", "backward", "step", "zero_grad", "local", "predict", "backward", "step"),
    (
        *("backward", "step", "save", "backward", "step", "resume", "predict"),
        *("backward", "step", "resume", "backward", "step"),
    ),
    (*_STEP, *_STEP, *_STEP, *_STEP, *_STEP, *_STEP),
    ("zero_grad", "zero_grad", "backward", "step", "zero_grad", "zero_grad", "backward"),
    ("backward", "step", "zeros", "clip", "step", "local", "backward", "step", "zeros", *_STEP),
    (*_STEP, "resize", *_STEP, "save", "resize", "zero_grad", "local", "resize", "backward", "step", "resume", *_STEP),
    (*_STEP, *_STEP, "epoch", *_STEP, *_STEP, "epoch", *_STEP),
    (*_STEP, "freeze", *_STEP, "freeze", "save", "unfreeze", *_STEP, "resume", *_STEP, "unfreeze", *_STEP),
    ("unfreeze", *_STEP, "save", "resume", *_STEP),
    ("open", "local", "predict", "backward", "save", "close", "backward", "step", "resume", *_STEP),
    ("backward", "clip", "clip", "step", "backward", "clip", "step"),
    ("backward", "local", "save", "backward", "step"),
    ("local", "local", "local", "local", "local", "backward", "step"),
    ("open", "open", "backward", "close", "backward", "predict_alone", "close", "backward", "clip", "step"),
    ("open", "backward", "zero_grad", "backward", "close", "backward", "step"),
    ("open", "close", "backward", "step"),
    (
        *("backward", "clip", "save", "predict", "step", "step", "clip", "step"),
        *("zeros", "zeros", "save", "predict", "step"),
    ),
    (
        *("backward", "clip", "backward", "step", "open", "clip", "step", "zeros", "backward", "close", "backward"),
        *("open", "close", "clip", "zero_grad", "backward", "step"),
    ),
    ("backward", "clip", "step", "save", "backward", "clip", "step", "resume", "backward", "step"),
    (*_STEP, "save", "backward", "step", "save", "resume", "backward", "step", "resume", "save", "resume", *_STEP),
)
"""Programs that found faults, run first."""
EMPTY_WINDOW: Words = ("open", "close", "backward", "step")
"""Run also without looking: a look between the window and the backward may repair what the window has left."""


def _used_after_resuming(world_size: int, promised: Capabilities) -> Job:
    """Branch b has no optimizer state when it is saved, because a rank uses it only in the step after."""
    taken = (("a",),) * world_size + (("a", "b"),) * world_size
    words = (*_STEP, "save", "resume", *_STEP, *_STEP)
    return training_program(world_size, promised, words, branching(2, "ab"), taken=taken)


def _counted_apart(world_size: int, promised: Capabilities) -> Job:
    """Branch b has taken fewer steps than the rest when it is saved; Adam counts steps for each parameter."""
    taken = (("a",),) * world_size + (("a", "b"),) * world_size
    words: tuple[Word, ...] = (*_STEP, *_STEP, "save", "resume", *_STEP)
    model = branching(2, "ab", dtype="float64")  # its bounds are so narrow that one additional step shows
    return training_program(world_size, promised, words, model, ADAM, taken=taken)


def _coming_and_going(world_size: int, promised: Capabilities) -> Job:
    """Branch a is used while b's gradient exists, and is then unused with a zero gradient."""
    words: tuple[Word, ...] = ("backward", "backward", "step", "zeros", "backward", "clip", "step", "zeros", "step")
    taken = ("b",), ("a",), ("b",)
    return training_program(world_size, promised, words, branching(2, "ab"), taken=taken, together=True)


@st.composite
def programs(draw: DrawFn, world_size: int, capabilities: Capabilities) -> Job:
    """Up to LONGEST words, on a model with or without branches, observed after every operation or at the
    end.
    """
    sentence = draw(_SENTENCES)
    model = draw(_models(capabilities))
    names = model.branches
    taken = draw(choice(BRANCHES_TAKEN))(names) if names else ((),)
    return training_program(
        world_size,
        capabilities,
        sentence,
        model,
        draw(optimizers(capabilities)),
        sizes=draw(choice(((2, 3), (1, 3), (4, 1, 2)))),
        uneven=capabilities.replica.uneven_batches != "refused" and draw(choice((False, False, True))),
        taken=taken,
        max_norm=draw(choice((0.3, 0.02, 50.0))),
        looking=draw(choice((True, False))),
        seed=(seed := draw(SEEDS)),
        together=seed % 2 == 1,
    )


_OFTEN: tuple[Word, ...] = ("backward", "step", "zero_grad", "local", "backward", "step")


_SENTENCES: SearchStrategy[list[Word]] = st.lists(choice((*_OFTEN, *WORDS)), min_size=3, max_size=LONGEST)
"""Backwards and steps are as frequent as all other words together."""


def _models(capabilities: Capabilities) -> SearchStrategy[ModelSpec]:
    plain = models(capabilities, exact=False, depths=(1, 2))
    if "branch" not in capabilities.replica.model_features or capabilities.replica.unused_parameters != "synchronised":
        return plain
    return st.one_of(plain, branching_models(capabilities, exact=False))
