"""Hypothesis strategies for models and training Jobs. Public: use them to write checks of your own.

Every strategy takes the world size and the capabilities that the Job must keep within. Choices are few and cheap (an
integer, one of a list), as drawing has to keep up with ranks that run hundreds of Jobs per second; the numbers inside
a Job come from its seed. `exact` Jobs have sums without rounding (ddpcheck.oracle.exactness), the others are judged by
bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, Literal, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ddpcheck.contract import TYPICAL, Capabilities
from ddpcheck.job import Backward, DataSpec, Job, Observe, Operation, OptimizerSpec, PerRank, Predict, Step, ZeroGrad
from ddpcheck.models.spec import Activation, Activity, BatchNorm, Embedding, Head, Layer, Linear, ModelSpec, Scale
from ddpcheck.oracle import is_exact, loss_scale_for

T = TypeVar("T")
WIDTHS = (3, 1, 2, 4, 5, 7)
"""The simplest first, to which failing Jobs shrink. Arrays of one element fit many causes, so 1 is not first."""
Loss = Literal["squared_error", "linear", "cross_entropy"]
LOSSES: dict[bool, tuple[Loss, ...]] = {
    True: ("linear", "squared_error"),
    False: ("linear", "squared_error", "cross_entropy"),
}
MOMENTUM = OptimizerSpec(lr=0.05, momentum=0.9, weight_decay=0.1)
ADAM = OptimizerSpec("adam", lr=0.02, betas=(0.5, 0.75), eps=0.01)
OPTIMIZERS = {
    "sgd": (
        OptimizerSpec(lr=0.05),
        OptimizerSpec(lr=0.05, momentum=0.9),
        OptimizerSpec(lr=0.05, weight_decay=0.1),
        OptimizerSpec(lr=0.03, momentum=0.5, weight_decay=0.2),
    ),
    "adam": (
        ADAM,
        OptimizerSpec("adam", lr=0.01, betas=(0.875, 0.984375), eps=0.1),
        OptimizerSpec("adam", lr=0.02, betas=(0.5, 0.75), eps=0.05, weight_decay=0.25),
    ),
}
NONE = TYPICAL.of_facets("replica").but(model_features=frozenset())
GRADIENTS = (Observe(("gradients",)),)
PARAMETERS = (Observe(("parameters",)),)


@st.composite
def models(
    draw: DrawFn,
    capabilities: Capabilities = NONE,
    *,
    exact: bool = True,
    depths: tuple[int, ...] = (1, 2, 3),
    losses: tuple[Loss, ...] | None = None,
    batch_norm: bool = False,
) -> ModelSpec:
    """Chains of linear layers with biases, scales, scalars, tied, frozen and embedding layers, as promised; rarely with
    an auxiliary term.

    batch_norm: some have it; such models have no bounds. Branches are left to branching_models().
    """
    features = capabilities.replica.model_features
    extras = ["", "no bias"]
    extras += ["scale", "scalar"] * ("scale" in features) + ["buffer"] * ("buffer" in features)
    extras += ["frozen"] * ("frozen" in features) + ["tied"] * ("tied" in features)
    extras += ["norm"] * (batch_norm and "batch_norm" in features)
    terms: list[str] = [name for name in ("penalty", "activity", "auxiliary_head") if name in features]
    extras = extras * 2 + terms if terms else extras
    width = draw(choice(WIDTHS))
    layers: list[Layer] = []
    if "embedding" in features and (vocabulary := draw(choice((0, 0, 0, 0, 1, 3, 6)))):
        layers.append(Embedding("embedding", vocabulary, width))
    learned = bool(layers)
    curve: Literal["relu", "tanh"] = "relu" if exact else draw(choice(("relu", "tanh")))
    blocks = choice(tuple(product(extras, WIDTHS)))
    for number in range(1, draw(choice(depths)) + 1):
        extra, outputs = draw(blocks)
        if number > 1:
            layers.append(Activation(curve))
        outputs = width if extra == "tied" else outputs
        frozen = extra == "frozen" and learned  # some layer must be trained
        often = float(number) if exact else number / 4  # the coefficient of a term of the loss
        penalty = often if extra == "penalty" else 0.0
        layers.append(Linear(f"fc{number}", width, outputs, bias=extra != "no bias", frozen=frozen, penalty=penalty))
        if extra == "activity":
            layers.append(Activity(often))
        if extra == "auxiliary_head":
            layers.append(Head(f"head{number}", outputs, outputs, often))
        if extra == "norm":
            layers.append(BatchNorm(f"norm{number}", outputs))
        if extra in ("scale", "scalar", "buffer"):
            layers.append(Scale(f"scale{number}", 0 if extra == "scalar" else outputs, buffer=extra == "buffer"))
        if extra == "tied":
            layers.append(Linear(f"tied{number}", width, width, uses=f"fc{number}"))
        width, learned = outputs, True
    layers = [replace(layer, outputs=width) if isinstance(layer, Head) else layer for layer in layers]
    loss, dtype = draw(choice(tuple(product(losses or LOSSES[exact], sorted(capabilities.replica.replica_dtypes)))))
    return ModelSpec(tuple(layers), loss=loss, dtype=dtype)


def choice(values: tuple[T, ...]) -> SearchStrategy[T]:
    """One of the values, simplest first. Made once, because Hypothesis takes longer to analyse a new strategy than to
    draw.
    """
    return _made_once(values, tuple(map(type, values)))


@cache
def _made_once(values: tuple[Any, ...], types: tuple[type, ...]) -> SearchStrategy[Any]:
    """types: (0, 1) and (False, True) are equal, but booleans index arrays differently."""
    del types
    return st.sampled_from(values)


SEEDS = st.integers(0, 1 << 16)


@st.composite
def training_jobs(
    draw: DrawFn,
    world_size: int,
    capabilities: Capabilities = NONE,
    *,
    model: SearchStrategy[ModelSpec] | None = None,
    exact: bool = True,
    rounds: tuple[int, ...] = (1, 2, 3),
    optimizer: SearchStrategy[OptimizerSpec] | None = None,
    uneven: bool = False,
    observe: Sequence[Operation] = GRADIENTS,
) -> Job:
    """Rounds of zero_grad, backward on new samples, `observe`; with an optimizer also a step and its parameters.

    uneven: ranks have batches of different sizes, some none; each moves to the next rank in the next round.
    """
    drawn = draw(models(capabilities, exact=exact) if model is None else model)
    sizes = (1, 2, 4) if exact else (2, 1, 3, 4, 5)
    count, first = draw(choice(tuple(product(rounds, sizes))))
    if "batch_norm" in drawn.features():
        first = max(first, 2)  # the variance of one sample is an error in some frameworks
    batches = [draw(choice((*sizes, 0))) for _ in range(world_size - 1)] if uneven else [first] * (world_size - 1)
    batches.append(first)  # never 0: weights by sizes need a sample
    spec = OptimizerSpec() if optimizer is None else draw(optimizer)
    operations: list[Operation] = []
    for number in range(count):
        operations += [ZeroGrad(), Backward(shards(rotated(batches, number), number * sum(batches))), *observe]
        operations += [Step(), *PARAMETERS] if optimizer is not None else []
    return training_job(world_size, drawn, operations, spec, exact=exact, seed=draw(SEEDS))


def rotated(batches: Sequence[int], places: int) -> list[int]:
    """The sizes, moved by this many ranks."""
    places %= len(batches)
    return [*batches[places:], *batches[:places]]


@st.composite
def branching_models(draw: DrawFn, capabilities: Capabilities = NONE, *, exact: bool = True) -> ModelSpec:
    """fc1, one to three residual branches of equal shape (a, b, c), fc2: one branch's gradient can pass for
    another's.
    """
    width, number = draw(choice(tuple(product((2, 1, 3), (2, 1, 3)))))
    loss, dtype = draw(choice(tuple(product(LOSSES[exact], sorted(capabilities.replica.replica_dtypes)))))
    return branching(width, "abc"[:number], loss=loss, dtype=dtype)


def branching(width: int, names: str, **options: str) -> ModelSpec:
    """The model of branching_models."""
    branches = [Linear(f"branch_{name}", width, width, branch=name) for name in names]
    layers = (Linear("fc1", 2, width), *branches, Linear("fc2", width, 2))
    return ModelSpec(layers, **options)  # type: ignore[arg-type]  # as mlp's


def shards(batches: Sequence[int], start: int = 0) -> PerRank:
    """The next samples for every rank: rank 0 the first batches[0] of them, rank 1 those after, and so on."""
    found = []
    for size in batches:
        found.append(tuple(range(start, start + size)))
        start += size
    return tuple(found)


def training_job(
    world_size: int,
    model: ModelSpec,
    operations: Sequence[Operation],
    optimizer: OptimizerSpec | None = None,
    *,
    exact: bool = True,
    seed: int = 0,
) -> Job:
    """A Job with data for all samples that its operations use.

    exact: with the loss scale that makes its sums exact; in float64 if they do not fit float32.
    """
    batches = [
        rank for operation in operations if isinstance(operation, (Backward, Predict)) for rank in operation.samples
    ]
    data = DataSpec(1 + max((index for batch in batches for index in batch), default=0), kind(exact), seed + 1)
    scale = float(loss_scale_for(world_size, operations)) if exact else 1.0
    model = replace(model, loss_scale=scale)
    job = Job(world_size, tuple(operations), model, optimizer or OptimizerSpec(lr=1.0), data, seed)
    if exact and model.dtype == "float32" and not is_exact(job, NONE):
        return replace(job, model=replace(model, dtype="float64"))
    return job


def kind(exact: bool) -> Literal["lattice", "real"]:
    return "lattice" if exact else "real"


def sgd(*, exact: bool = False) -> SearchStrategy[OptimizerSpec]:
    """SGD with and without momentum and weight decay; with an integer learning rate if sums must stay exact."""
    if exact:
        return choice((OptimizerSpec(lr=1.0), OptimizerSpec(lr=1.0, momentum=1.0)))
    return choice(OPTIMIZERS["sgd"])


def adam() -> SearchStrategy[OptimizerSpec]:
    """Adam with an eps that makes bounds useful, and dyadic betas, whose bias corrections are exact in every dtype."""
    return choice(OPTIMIZERS["adam"])


def optimizers(capabilities: Capabilities) -> SearchStrategy[OptimizerSpec]:
    """SGD and Adam, as promised."""
    strategies = {"sgd": sgd(), "adam": adam()}
    return st.one_of([made for name, made in strategies.items() if name in capabilities.replica.optimizers])
