"""Random training programs: whatever legal sequence of operations ranks run, one process that runs it sees the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ddpcheck.capabilities import Capabilities
from ddpcheck.checks import law
from ddpcheck.job import Backward, Clip, Job, Observe, Operation, OptimizerSpec, Predict, Resume, Save, Step, ZeroGrad
from ddpcheck.model import ModelSpec, mlp

from .comparison import as_one_process
from .drawing import for_all
from .pitfalls import fitting
from .strategies import SEEDS, adam, branching_models, choice, models, sgd, shards, training_job

if TYPE_CHECKING:
    from ddpcheck.session import Session

Word = Literal["backward", "local", "step", "zero_grad", "clip", "predict", "predict_alone", "save", "resume"]
EVERYTHING = Observe(("parameters", "gradients"))
MOMENTUM = OptimizerSpec(lr=0.05, momentum=0.9, weight_decay=0.1)
LONGEST = 14


@law("programs", "facet:replica")
def check_any_training_program_goes_as_on_one_process(session: Session) -> None:
    """Any legal sequence of backward, no_sync, step, zero_grad, clip, predict, save and resume leads every rank where it
    leads one process, after every operation of it.

    Half of the programs are looked at only at their end, so that looking cannot put right what is wrong.
    """
    world, promised = session.world_size, session.capabilities
    examples = fitting(session, [training_program(world, promised, words) for words in KNOWN])
    for_all(session, programs(world, promised), as_one_process(promised), examples=examples, share=1.5)


_STEP: tuple[Word, ...] = ("zero_grad", "backward", "step")

KNOWN: tuple[tuple[Word, ...], ...] = (
    ("backward", "step", "backward", "step"),  # no zero_grad: the second step takes both gradients
    ("backward", "step", "local", "backward", "clip", "step"),
    ("local", "zero_grad", "local", "backward", "clip", "step", "backward", "step"),
    ("local", "save", "predict_alone", "backward", "step", "resume", "backward", "step", "resume", "backward", "step"),
    ("backward", "backward", "step", "zero_grad", "local", "predict", "backward", "step"),
    ("backward", "step", "save", "backward", "step", "resume", "backward", "step", "resume", "backward", "step"),
    (*_STEP, *_STEP, *_STEP, *_STEP, *_STEP, *_STEP),
    ("zero_grad", "zero_grad", "backward", "step", "zero_grad", "zero_grad", "backward"),
)
"""Programs that found faults, run first."""


@dataclass
class _State:
    """What the legality of the next operation depends on."""

    samples: int = 0
    has_gradients: bool = False
    has_local: bool = False
    saved: bool = False


def legal(words: Iterable[Word], promised: Capabilities) -> Iterator[Word]:
    """The words that are defined where they stand and promised; the others are left out.

    A step or clip needs a gradient, and none that is still local: replicas would rightly part.
    """
    state = _State()
    for word in words:
        if word == "backward":
            state.has_gradients, state.has_local = True, False
        elif word == "local":
            if not promised.no_sync:
                continue
            state.has_gradients = state.has_local = True
        elif word in ("step", "clip"):
            if not state.has_gradients or state.has_local or (word == "clip" and not promised.clipping):
                continue
        elif word in ("save", "resume"):
            if not promised.checkpoint or (word == "resume" and not state.saved):
                continue
            state.saved = True
        if word in ("zero_grad", "resume"):
            state.has_gradients = state.has_local = False
        yield word


def training_program(
    world_size: int,
    promised: Capabilities,
    words: Iterable[Word],
    model: ModelSpec | None = None,
    optimizer: OptimizerSpec = MOMENTUM,
    *,
    sizes: tuple[int, ...] = (2,),
    taken: tuple[tuple[str, ...], ...] = ((),),
    max_norm: float = 0.3,
    looking: bool = True,
    seed: int = 0,
) -> Job:
    """A Job of these words. The n-th backward has sizes[n % len] samples on every rank, and rank r takes the branches
    taken[(n + r) % len]. looking: at everything after every operation, else at the end only.
    """
    operations: list[Operation] = []
    start = backwards = 0
    for word in legal(words, promised):
        size = sizes[backwards % len(sizes)]
        ranks = range(world_size)
        active = tuple(taken[(backwards + rank) % len(taken)] for rank in ranks)
        if word in ("backward", "local"):
            operations.append(Backward(shards([size] * world_size, start), word == "backward", active))
            start += size * world_size
            backwards += 1
        elif word == "predict":
            operations.append(Predict(shards([1] * world_size), active))
        elif word == "predict_alone":
            alone = tuple((0,) * (rank == world_size - 1) for rank in ranks)
            operations.append(Predict(alone, active))
        else:
            operations.append(Clip(max_norm) if word == "clip" else _PLAIN[word])
        operations += [EVERYTHING] if looking else []
    operations += [] if looking else [EVERYTHING]
    return training_job(world_size, model or mlp((2, 3, 2)), operations, optimizer, exact=False, seed=seed)


_PLAIN: dict[Word, Operation] = {"step": Step(), "zero_grad": ZeroGrad(), "save": Save(), "resume": Resume()}

_WORDS: tuple[Word, ...] = (
    *("backward", "step", "zero_grad", "local", "backward", "step", "clip"),
    *("predict", "predict_alone", "save", "resume"),
)


@st.composite
def programs(draw: DrawFn, world_size: int, capabilities: Capabilities) -> Job:
    """Up to LONGEST words, on a model with or without branches, looked at all the time or at the end."""
    words = draw(_SENTENCES)
    offered = [strategy for name, strategy in (("sgd", sgd()), ("adam", adam())) if name in capabilities.optimizers]
    model = draw(_models(capabilities))
    names = model.branches
    taken = draw(choice(((names,), (names, ()), ((), names[:1]), (names[:1], names[1:])))) if names else ((),)
    return training_program(
        world_size,
        capabilities,
        words,
        model,
        draw(st.one_of(offered)),
        sizes=draw(choice(((2,), (1, 3), (4, 1, 2)))),
        taken=taken,
        max_norm=draw(choice((0.3, 0.02, 50.0))),
        looking=draw(choice((True, False))),
        seed=draw(SEEDS),
    )


_SENTENCES: SearchStrategy[list[Word]] = st.lists(choice(_WORDS), min_size=3, max_size=LONGEST)


def _models(capabilities: Capabilities) -> SearchStrategy[ModelSpec]:
    plain = models(capabilities, exact=False, depths=(1, 2))
    if "branch" not in capabilities.model_features or capabilities.unused_parameters != "synchronised":
        return plain
    return st.one_of(plain, branching_models(capabilities, exact=False))
