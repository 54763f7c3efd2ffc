"""The grammar of random training programs: the legal sequences of operations, and the Job that they make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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


class _Layers:
    """The linear layers of a model, which are frozen and unfrozen one after the other."""

    def __init__(self, model: ModelSpec) -> None:
        linear = [layer for layer in model.layers if isinstance(layer, Linear) and not layer.uses]
        self._names = [layer.name for layer in linear]
        self._in_every_batch = {layer.name for layer in linear if not layer.branch}
        self._others_learn = any(
            isinstance(layer, Embedding) or (isinstance(layer, Scale) and not layer.buffer) for layer in model.layers
        )
        self._frozen = [layer.name for layer in linear if layer.frozen]
        self._switched: list[str] = []

    def switch(self, *, trainable: bool) -> list[Operation]:
        """The operations that switch the next layer; none if no layer is left. A layer that every batch uses always stays
        trainable.
        """
        name = next(iter(self._frozen if trainable else self._may_be_frozen()), None)
        if name is None:
            return []
        self._frozen = [other for other in self._frozen if other != name] + [name] * (not trainable)
        self._switched = [*dict.fromkeys((*self._switched, name))]
        return [ZeroGrad(), SetTrainable((name,), trainable)]

    def again(self) -> list[Operation]:
        """The operations that repeat the settings for a new replica."""
        return [SetTrainable((name,), name not in self._frozen) for name in self._switched]

    def _may_be_frozen(self) -> list[str]:
        trainable = [name for name in self._names if name not in self._frozen]
        return [name for name in trainable if self._others_learn or self._in_every_batch - {*self._frozen, name}]


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
    operations: list[Operation] = []
    backwards = 0
    for number, word in enumerate(legal(words, promised)):
        places = ((backwards + (0 if together else rank)) % len(taken) for rank in range(world_size))
        active = tuple(taken[place] for place in places)
        made = _operations_of(word, samples, layers, active, max_norm, seed + number)
        backwards += word in ("backward", "local")
        operations += [*made, EVERYTHING] if made and looking else made
    operations += [] if looking else [EVERYTHING]
    return training_job(world_size, model, operations, optimizer, exact=False, seed=seed)


def _operations_of(
    word: Word, samples: _Samples, layers: _Layers, active: tuple[tuple[str, ...], ...], max_norm: float, seed: int
) -> list[Operation]:
    """The operations of a word, if any. active: each rank's branches. seed: of the order of a new epoch."""
    ranks = range(samples.world_size)
    match word:
        case "backward" | "local":
            return [Backward(samples.next(), word == "backward", active)]
        case "resize":
            samples.resized += 1
            return []
        case "epoch":
            samples.next_epoch(seed)
            return []
        case "freeze" | "unfreeze":
            return layers.switch(trainable=word == "unfreeze")
        case "predict":
            return [Predict(shards([2] * len(ranks)), active)]
        case "predict_alone":
            return [Predict(tuple((0,) * (rank == ranks[-1]) for rank in ranks), active)]
        case "resume":
            return [Resume(), *layers.again()]
        case "clip":
            return [Clip(max_norm)]
        case _:
            return [_OPERATIONS[word]]


_OPERATIONS: dict[Word, Operation] = {
    "step": Step(),
    "zero_grad": ZeroGrad(),
    "zeros": ZeroGrad(to_zeros=True),
    "save": Save(),
    "open": OpenWindow(),
    "close": CloseWindow(),
}
"""The words that stand for one operation without parameters."""


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
