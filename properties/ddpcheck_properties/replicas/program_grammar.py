"""The grammar of random training programs: the legal sequences of operations, and the Job that they make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from ddpcheck.contract import Capabilities, ReplicaMethod
from ddpcheck.job import (
    Backward,
    Clip,
    CloseWindow,
    Job,
    Observe,
    OpenWindow,
    Operation,
    OptimizerSpec,
    PerRank,
    Predict,
    Resume,
    Save,
    SetTrainable,
    Step,
    ZeroGrad,
)
from ddpcheck.models.spec import Embedding, Linear, ModelSpec, Scale, mlp

from ..strategies import MOMENTUM, shards, training_job

Word = Literal[
    "backward", "step", "zero_grad", "local", "clip", "predict", "predict_alone", "save", "resume",
    "zeros", "resize", "epoch", "freeze", "unfreeze", "open", "close",
]  # fmt: skip
"""local: a backward inside no_sync. zeros: zero_grad in its other form. resize: later batches have the next size.
epoch: the samples start again, in another order. freeze, unfreeze: the next possible layer. open, close: no_sync around
the words between them.
"""
WORDS: tuple[Word, ...] = get_args(Word)
EVERYTHING = Observe(("parameters", "gradients"))


@dataclass
class _State:
    """The state that decides which operations are legal next. local: whether there are unreduced gradients."""

    gradients: bool = False
    local: bool = False
    saved: bool = False
    windows: int = 0

    def allows(self, word: Word, promised: Capabilities) -> bool:
        """False for a step or clip with local gradients, after which correct replicas differ. Local gradients may exist
        on some ranks only, so it is undefined which gradients become zero.
        """
        reduced = self.gradients and not self.local
        switches = promised.has(ReplicaMethod.UNFREEZING) and "frozen" in promised.replica.model_features
        return {
            "local": promised.has(ReplicaMethod.NO_SYNC),
            "open": promised.has(ReplicaMethod.NO_SYNC),
            "close": self.windows > 0,
            "step": reduced,
            "clip": reduced and promised.has(ReplicaMethod.CLIPPING),
            "zeros": reduced and promised.has(ReplicaMethod.ZEROES_GRADIENTS),
            "save": promised.has(ReplicaMethod.CHECKPOINT),
            "resume": self.saved and not self.windows,
            "freeze": switches and not self.windows,
            "unfreeze": switches and not self.windows,
        }.get(word, True)

    def after(self, word: Word) -> None:
        if word in ("backward", "local"):
            self.gradients, self.local = True, word == "local" or self.windows > 0
        elif word in ("zero_grad", "resume", "freeze", "unfreeze"):
            self.gradients = self.local = False
        self.windows += (word == "open") - (word == "close")
        self.saved = self.saved or word == "save"


def legal(words: Iterable[Word], promised: Capabilities) -> Iterator[Word]:
    """The words that are defined at their position and promised; others are left out. Open windows are closed at the end."""
    state = _State()
    for word in words:
        if state.allows(word, promised):
            state.after(word)
            yield word
    for _ in range(state.windows):
        yield "close"


@dataclass
class _Samples:
    """The position of a program in its data. sizes: of one rank's batches; uneven: odd ranks have one sample more.

    Samples follow the order of an epoch and start again when they run out.
    """

    world_size: int
    sizes: Sequence[int]
    uneven: bool = False
    taken: int = 0
    resized: int = 0
    order: tuple[int, ...] | None = None

    def next(self) -> PerRank:
        size = self.sizes[self.resized % len(self.sizes)]
        batches = [size + (rank % 2 if self.uneven else 0) for rank in range(self.world_size)]
        start, self.taken = self.taken, self.taken + sum(batches)
        made = shards(batches, start)
        if self.order is None:
            return made
        return tuple(tuple(self.order[index % len(self.order)] for index in rank) for rank in made)

    def next_epoch(self, seed: int) -> None:
        """The samples of the first epoch, in another order."""
        known = self.taken if self.order is None else len(self.order)
        if known:
            self.order = tuple(np.random.default_rng(seed).permutation(known).tolist())
            self.taken = 0


@dataclass
class _Layers:
    """The trainable layers; those of `model` that can be frozen are switched one after the other."""

    model: ModelSpec
    frozen: list[str] = field(default_factory=list)
    switched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        linear = [layer for layer in self.model.layers if isinstance(layer, Linear) and not layer.uses]
        self.frozen = [layer.name for layer in linear if layer.frozen]
        self.linear = [layer.name for layer in linear]
        self.lasting = {layer.name for layer in linear if not layer.branch}
        self.others = any(
            isinstance(layer, Embedding) or (isinstance(layer, Scale) and not layer.buffer)
            for layer in self.model.layers
        )

    def switch(self, *, trainable: bool) -> list[Operation]:
        """The operation that switches the next layer; none if no layer is left. A layer that every batch uses always
        stays trainable.
        """
        if trainable:
            candidates = self.frozen
        else:
            learning = [name for name in self.linear if name not in self.frozen]
            candidates = [name for name in learning if self.others or self.lasting - {*self.frozen, name}]
        if not candidates:
            return []
        name = candidates[0]
        self.frozen = [other for other in self.frozen if other != name] + [name] * (not trainable)
        self.switched = [*dict.fromkeys((*self.switched, name))]
        return [ZeroGrad(), SetTrainable((name,), trainable)]

    def again(self) -> list[Operation]:
        """The operations that repeat the settings for a new replica."""
        return [SetTrainable((name,), name not in self.frozen) for name in self.switched]


def training_program(
    world_size: int,
    promised: Capabilities,
    words: Iterable[Word],
    model: ModelSpec | None = None,
    optimizer: OptimizerSpec = MOMENTUM,
    *,
    sizes: tuple[int, ...] = (2, 3, 1),
    uneven: bool = False,
    taken: tuple[tuple[str, ...], ...] = ((),),
    together: bool = False,
    max_norm: float = 0.3,
    looking: bool = True,
    seed: int = 0,
) -> Job:
    """A Job of these words. In the n-th backward rank r takes the branches taken[(n + r) % len]; `together`: all ranks
    take those of rank 0. looking: observe everything after every operation, otherwise only at the end.
    """
    model = model or mlp((2, 3, 2))
    samples, layers = _Samples(world_size, sizes, uneven), _Layers(model)
    ranks = range(world_size)
    operations: list[Operation] = []
    backwards = 0
    for number, word in enumerate(legal(words, promised)):
        active = tuple(taken[(backwards + (0 if together else rank)) % len(taken)] for rank in ranks)
        made: list[Operation] = []
        if word in ("backward", "local"):
            made = [Backward(samples.next(), word == "backward", active)]
            backwards += 1
        elif word == "resize":
            samples.resized += 1
        elif word == "epoch":
            samples.next_epoch(seed + number)
        elif word in ("freeze", "unfreeze"):
            made = layers.switch(trainable=word == "unfreeze")
        elif word == "predict":
            made = [Predict(shards([2] * world_size), active)]
        elif word == "predict_alone":
            made = [Predict(tuple((0,) * (rank == world_size - 1) for rank in ranks), active)]
        elif word == "resume":
            made = [Resume(), *layers.again()]
        else:
            made = [Clip(max_norm) if word == "clip" else _PLAIN[word]]
        operations += [*made, EVERYTHING] if made and looking else made
    operations += [] if looking else [EVERYTHING]
    return training_job(world_size, model, operations, optimizer, exact=False, seed=seed)


_PLAIN: dict[Word, Operation] = {
    "step": Step(),
    "zero_grad": ZeroGrad(),
    "zeros": ZeroGrad(to_zeros=True),
    "save": Save(),
    "open": OpenWindow(),
    "close": CloseWindow(),
}


def program_text(operations: Iterable[Operation]) -> str:
    """A description of a program, without its observations: of a long one, its length and its last operations."""
    acts = [each for each in operations if not isinstance(each, Observe)]
    words = [
        (_SAID.get(type(each)) or each.kind) + " in no_sync" * (isinstance(each, Backward) and not each.sync)
        for each in acts
    ]
    return (
        ", ".join(words) if len(words) <= _LONG else f"{len(words)} operations; the last: {', '.join(words[-_LAST:])}"
    )


_LONG = 12
_LAST = 6
_SAID: dict[type[Operation], str] = {
    OpenWindow: "no_sync begins",
    CloseWindow: "no_sync ends",
    SetTrainable: "freeze or unfreeze",
    Resume: "load",
}
