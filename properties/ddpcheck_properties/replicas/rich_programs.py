"""Long training programs on models with many features, for faults that need two circumstances at once.

A seed chooses features, optimizers and operations, so that each pair of them meets in one of a few programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Literal

from hypothesis import strategies as st

from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, needs
from ddpcheck.job import Job, OptimizerSpec
from ddpcheck.models.spec import Activation, Activity, BatchNorm, Embedding, Head, Layer, Linear, ModelSpec, Scale

from ..drawing import all_or_every_second, for_all, within_promises
from ..explicit_examples import fitting
from ..judges import Judge
from ..strategies import LOSSES, OPTIMIZERS, SEEDS
from .comparison import as_one_process
from .program_grammar import Word, training_program
from .programs import BRANCHES_TAKEN, WrittenPrograms, telling
from .shown_values import by_shown_values
from .unchanged_arrays import arguments_unchanged, states_and_batches_unchanged

if TYPE_CHECKING:
    from ddpcheck.session import Session
    from ddpcheck.trace import Trace

ALWAYS = (95, 177, 197, 27, 156, 193, 224, 133, 62, 139, 221, 19, 167)
"""Seeds of the programs that run before any is drawn: of the first 250 seeds, those in which most pairs of circumstances
meet.
"""
TOO_LARGE = 1e6
"""The size at which training counts as diverged; nothing is compared beyond it."""
NEAR = 2.0**-24
"""A thousandth of float32's precision, and a hundred million roundings of float64."""


@law("programs", needs.replica)
def check_long_programs_on_rich_models_match_one_process(session: Session) -> None:
    """A training run of many rounds on a model with many kinds of layers gives every rank the results of one process.

    In these rounds, ranks save, resume, predict, freeze layers, accumulate micro-batches and use different batch sizes.
    """
    world, promised = session.world_size, session.capabilities
    written = WrittenPrograms()

    def program(seed: int) -> Job:
        choices = Random(seed)
        model = rich_model(choices, promised)
        words: tuple[Word, ...] = rich_words(choices)
        if "batch_norm" in model.features():  # a clip may add 1e-6 to the norm, which bounds allow and NEAR does not
            words = tuple(word for word in words if word != "clip")
        return written.job(partial(_program, world, promised, model, seed), words, looking=seed % 3 == 0)

    examples = all_or_every_second(session, fitting(session, map(program, ALWAYS)))
    drawn = SEEDS.map(program) if examples else st.nothing()
    judge = telling(_judge(promised))
    for_all(
        session,
        drawn,
        judge,
        examples=examples,
        shorter=written.shorter,
        clearer=written.clearer,
        share=0.25,
        further=by_shown_values(session),
    )


def _judge(promised: Capabilities) -> Judge:
    """By bounds, or by a tolerance for batch norm, which has none; arguments must stay unchanged."""
    bounded, near = (as_one_process(promised, TOO_LARGE, tolerance) for tolerance in (None, NEAR))

    def judge(job: Job, trace: Trace) -> None:
        assert job.model is not None
        (near if "batch_norm" in job.model.features() else bounded)(job, trace)
        states_and_batches_unchanged(job, trace)
        arguments_unchanged(promised, job, trace)

    return judge


def _program(
    world: int, promised: Capabilities, model: ModelSpec, seed: int, words: tuple[Word, ...], looking: bool
) -> Job:
    choices = Random(f"options {seed}")
    optimizer = slow_optimizer(choices, promised)
    normal = "batch_norm" in model.features()
    job = training_program(
        world,
        promised,
        words,
        model,
        optimizer,
        sizes=choices.choice(((2, 3), (1, 3), (4, 1, 2), (1,)) if not normal else ((3, 4), (5, 3))),
        uneven=promised.replica.uneven_batches != "refused" and seed % 2 == 1,
        taken=choices.choice(BRANCHES_TAKEN)(model.branches) if model.branches else ((),),
        together=choices.random() < 0.3,
        max_norm=choices.choice((0.3, 0.02, 50.0, 50.0)),
        looking=looking,
        seed=seed,
    )
    scale = choices.choice((1.0, 1.0, 0.5, 2.0))
    unbounded = normal or optimizer.name == "adam"  # or bounds that are wide in float32
    dtype = "float64" if unbounded else model.dtype
    return within_promises(replace(job, model=replace(model, loss_scale=scale, dtype=dtype)), promised)


def slow_optimizer(choices: Random, promised: Capabilities) -> OptimizerSpec:
    """An optimizer with so small a learning rate that many steps on many layers do not diverge."""
    offered = [specs for name, specs in OPTIMIZERS.items() if name in promised.replica.optimizers]
    chosen = choices.choice(choices.choice(offered or [OPTIMIZERS["sgd"]]))
    return replace(chosen, lr=chosen.lr / 4)


_ROUNDS: tuple[tuple[Word, ...], ...] = (
    ("zero_grad", "backward", "step"),
    ("backward", "step"),
    ("backward", "zeros", "backward", "step", "zeros"),
    ("zero_grad", "local", "backward", "clip", "step"),
    ("backward", "backward", "clip", "step", "zero_grad"),
    ("zero_grad", "open", "local", "predict", "local", "close", "backward", "step"),
)
_BETWEEN: tuple[tuple[Word, ...], ...] = (
    ("save",),
    ("save",),
    ("save", "resume"),
    ("resume",),
    ("predict",),
    ("predict_alone",),
    ("freeze",),
    ("freeze", "freeze"),
    ("unfreeze",),
    ("unfreeze",),
    ("resize",),
    ("epoch",),
    ("open", "close"),
    ("step",),
    ("clip",),
)


def rich_words(choices: Random) -> tuple[Word, ...]:
    """Rounds of training, mostly equal, sometimes with another operation in between."""
    usual = choices.choice(_ROUNDS)
    words: list[Word] = []
    for _ in range(choices.randint(4, 8)):
        words += usual if choices.random() < 0.6 else choices.choice(_ROUNDS)
        words += choices.choice(_BETWEEN) if choices.random() < 0.7 else ()
    return tuple(words)


def rich_model(choices: Random, promised: Capabilities) -> ModelSpec:
    """A model with about half of the features that are promised."""
    has = partial(drawn_feature, choices, promised.replica.model_features)
    dtypes = sorted(promised.replica.replica_dtypes) or ["float32"]
    normal = "float64" in dtypes and promised.replica.reduction_dtype == "model"
    if choices.random() < 0.1:
        return ModelSpec((Linear("fc1", 3, 2, bias=False),), dtype=choices.choice(dtypes))
    width = choices.choice((2, 3, 4))
    layers: list[Layer] = [Embedding("embedding", 4, width)] if has("embedding") else []
    curve: Literal["relu", "tanh"] = choices.choice(("relu", "tanh"))
    last = choices.choice((1, 2, 3, 3))
    for number in range(1, last + 1):
        outputs = choices.choice((width, width, 1, 2, 3, 5))
        frozen = bool(layers) and has("frozen", 0.3)
        penalty = 0.25 if has("penalty", 0.2) else 0.0
        bias = choices.random() < 0.7
        layers.append(Linear(f"fc{number}", width, outputs, bias=bias, frozen=frozen, penalty=penalty))
        width = outputs
        layers += _layers_behind(number, width, choices, has, normal=normal)
        layers += [Activation(curve)] * (number < last)
    first = next(layer for layer in layers if isinstance(layer, Linear))
    if "branch" in promised.replica.model_features and promised.replica.unused_parameters == "synchronised":
        names = "ab"[: choices.choice((0, 0, 1, 2))]
        layers += [Linear(f"branch_{name}", width, width, branch=name) for name in names]
    if has("tied") and first.inputs == first.outputs == width:
        layers.append(Linear("tied", width, width, bias=first.bias, uses=first.name))
    if has("auxiliary_head", 0.2):
        layers.append(Head("head", width, width, 0.5))
    dtype = choices.choice((max(dtypes), *dtypes))  # in float64 the bounds are narrower
    return ModelSpec(tuple(layers), loss=choices.choice(LOSSES[False]), dtype=dtype)


def drawn_feature(choices: Random, promised: AbstractSet[str], feature: str, often: float = 0.5) -> bool:
    """Whether a promised feature is used; drawn for every feature, so that a seed always gives the same other choices."""
    chosen = choices.random() < often
    return chosen and feature in promised


def _layers_behind(
    number: int, width: int, choices: Random, has: Callable[[str, float], bool], *, normal: bool
) -> Iterator[Layer]:
    """Layers of other kinds behind the linear layer of this number. normal: batch norm is possible."""
    if has("batch_norm", 0.2) and normal:
        yield BatchNorm(f"norm{number}", width)
    if has("activity", 0.2):
        yield Activity(0.25)
    if has("scale", 0.3):
        yield Scale(f"scale{number}", choices.choice((0, width)))
    if has("buffer", 0.3):
        yield Scale(f"buffer{number}", 0 if number == 2 else width, buffer=True)
