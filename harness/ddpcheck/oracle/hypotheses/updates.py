"""Hypotheses about a wrong parameter: mistakes in its last update or in the loading of its state; and about norms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from ...causes import Cause
from ...causes import updates as causes
from ...diagnosis import Evidence
from ...job import Job, OptimizerSpec
from ...seeded_values import Array
from ..bounded_values import Value
from ..clipping import Clip
from ..expected import Alternatives, Origin
from ..history import History
from ..optimizer import Optimizer
from .adam_variants import other_adams
from .optimizer_shards import shards_misplaced


@dataclass(frozen=True, slots=True)
class Update:
    """One update of one parameter; arrays have the ranks as first axis.

    before: the parameter, and `optimizer` its state, in front of the update. gradient: the one to apply. history: of
    the ranks' own gradients. clipped: how that was clipped. initial: the parameter before a state was loaded, if that was
    just done. earlier: the parameter in front of the update before, if there was one.
    """

    name: str
    before: Array
    gradient: Array
    optimizer: Optimizer
    history: History
    clipped: Clip | None = None
    initial: Array | None = None
    earlier: Array | None = None

    def evidence(self, expected: Array, rank: int) -> Evidence:
        """Small differences are no sign of lost precision: an error of one update is small beside the parameter."""
        made = tuple((cause, array[rank]) for cause, array in self._alternatives(expected, rank))
        spec = self.optimizer.spec
        stateful = spec.name == "adam" or spec.momentum > 0
        first = stateful and self.name not in {*self.optimizer.state, *self.optimizer.steps}
        adds = spec.name == "sgd" and self.before[rank].ndim == 2
        idle = self._stepped(gradient=np.zeros_like(self.gradient))[rank] if adds else None
        return Evidence(
            len(self.before),
            alternatives=made,
            before=self.before[rank],
            idle=idle,
            precision=False,
            otherwise=(causes.FIRST_UPDATE_HAS_STATE(),) * first,
        )

    def _alternatives(self, expected: Array, rank: int) -> Iterator[tuple[Cause, Array]]:
        size, spec, before = len(self.before), self.optimizer.spec, self.before
        yield causes.NOT_UPDATED(), before
        for cause, gradient in self.clipped.gone_wrong(self.name) if self.clipped else ():
            yield cause, self._stepped(gradient=gradient)
        for cause, gradient in self.history.windows_gone_wrong(self.name):
            yield cause, self._stepped(gradient=gradient)
        if (whole := self.history.never_zeroed(self.name)) is not None:
            yield causes.GRADIENTS_KEPT(), self._stepped(gradient=whole)
        with np.errstate(over="ignore"):  # as narrow as a wire may be
            halved = self.gradient.astype(np.float16).astype(np.float64)
        yield causes.GRADIENT_IN_FLOAT16(), self._stepped(gradient=halved)
        if (stale := self.history.of_the_step_before(self.name)) is not None:
            yield causes.GRADIENT_OF_STEP_BEFORE(), self._stepped(gradient=stale)
        if size > 1 and (own := self.history.own(self.name)) is not None:
            by_own = self._stepped(gradient=own)
            off = ~np.isclose(by_own[rank], expected)
            if not np.array_equal(by_own[rank][off], before[rank][off]):  # else it is as if it was not updated
                yield causes.UPDATED_BY_OWN(), by_own
            largest = np.broadcast_to(own.max(axis=0), before.shape)
            yield causes.UPDATED_BY_LARGEST(), self._stepped(gradient=largest)
            yield causes.PARAMETERS_AVERAGED(), np.broadcast_to(by_own.mean(axis=0), before.shape)
        if spec.name == "adam":
            yield from other_adams(self.name, self.optimizer, before, self.gradient)
        for factor, scaled in _factors(size):
            by_gradient = self._stepped(gradient=self.gradient * factor)
            by_rate = before + (expected - before[rank]) * factor
            if np.allclose(by_gradient[rank], by_rate[rank]):
                yield causes.GRADIENT_OR_RATE_SCALED(factor=factor, world_size=size), by_gradient
            yield causes.GRADIENT_SCALED(scaled=scaled, factor=factor, world_size=size), by_gradient
            yield causes.RATE_SCALED(factor=factor, world_size=size), by_rate
        yield causes.UPDATED_TWICE(), self._stepped(times=2)
        if self.initial is not None:
            yield causes.STEPPED_FROM_INITIAL(), self._stepped(before=np.broadcast_to(self.initial, before.shape))
            for cause, misplaced in shards_misplaced(self.name, self.optimizer):
                yield cause, self._stepped(misplaced)
        if self.optimizer.state:
            yield causes.OPTIMIZER_STATE_LOST(), self._stepped(Optimizer(spec, "float64"))
        if self.name not in {*self.optimizer.state, *self.optimizer.steps}:
            begun = self._like(spec)
            begun.step(self.name, Value(before), Value(np.zeros_like(before)))
            yield causes.ZERO_STEP_BEFORE(), self._stepped(begun)
        elif spec.momentum:
            rounded = self._like(spec)
            rounded.state[self.name] = Value(rounded.state[self.name].exact.astype(np.float16).astype(np.float64))
            yield causes.MOMENTUM_IN_FLOAT16(), self._stepped(rounded)
        for name, state in self.optimizer.state.items():
            if spec.momentum and name != self.name and state.exact.shape == before.shape:
                others = self._like(spec)
                others.state[self.name] = state
                yield causes.MOMENTUM_OF_OTHER(parameter=name), self._stepped(others)
        if spec.weight_decay:
            plain = replace(spec, weight_decay=0.0)
            yield causes.DECAY_MISSING(), self._stepped(self._like(plain))
            for times in (2, size):
                more = replace(spec, weight_decay=times * spec.weight_decay)
                yield causes.DECAY_TIMES(times=times), self._stepped(self._like(more))
            decayed = before * (1 - spec.lr * spec.weight_decay)
            yield causes.DECAY_DECOUPLED(), self._stepped(self._without_decay(plain), decayed)
        if spec.momentum:
            damped = self._stepped(
                gradient=self._decayed() * (1 - spec.momentum), optimizer=self._like(replace(spec, weight_decay=0.0))
            )
            yield causes.MOMENTUM_DAMPENED(), damped
            if self.optimizer.state:
                shared = self._like(spec)
                shared.state[self.name] = Value(self.gradient)
                yield causes.MOMENTUM_OVERWRITTEN(), self._stepped(shared)
            yield causes.NESTEROV(), self._ahead()
        with np.errstate(over="ignore"):  # values too large for it become infinite
            narrow = expected.astype(np.float16).astype(np.float64)
        yield causes.HELD_IN(dtype="float16"), np.broadcast_to(narrow, before.shape)
        significand, exponent = np.frexp(expected)
        short = np.ldexp(np.rint(significand * 2**8), exponent - 8)
        yield causes.HELD_IN(dtype="bfloat16"), np.broadcast_to(short, before.shape)

    def _ahead(self) -> Array:
        spec = self.optimizer.spec
        velocity = (self.before - self._stepped()) / spec.lr
        return np.asarray(self.before - spec.lr * (self._decayed() + spec.momentum * velocity))

    def _like(self, spec: OptimizerSpec) -> Optimizer:
        made = self.optimizer.copy()
        made.spec = spec
        return made

    def _without_decay(self, spec: OptimizerSpec) -> Optimizer:
        """A momentum of one update is so without the decay, too; without it SGD ends alike in either way."""
        made = self._like(spec)
        if spec.momentum and self.earlier is not None and self.name in made.state:
            decay = self.optimizer.spec.weight_decay * self.earlier
            made.state[self.name] = Value(made.state[self.name].exact - decay)
        return made

    def _decayed(self) -> Array:
        return self.gradient + self.optimizer.spec.weight_decay * self.before

    def _stepped(
        self,
        optimizer: Optimizer | None = None,
        before: Array | None = None,
        gradient: Array | None = None,
        times: int = 1,
    ) -> Array:
        """The parameter after the update, with something else than was promised."""
        used = (optimizer or self.optimizer).copy()
        parameter = Value(self.before if before is None else before)
        for _ in range(times):
            parameter = used.step(self.name, parameter, Value(self.gradient if gradient is None else gradient))
        return parameter.exact


def _factors(size: int) -> list[tuple[float, str]]:
    """The factor of a sum over ranks in place of a mean, and of the opposite."""
    if size == 1:
        return []
    return [(float(size), "summed, not averaged"), (1 / size, "divided by the world size once too often")]


@dataclass(frozen=True, slots=True)
class Loading:
    """A parameter or buffer after load_state on a new replica. before: the last values of the old one, on each rank. earlier:
    what happened to it before it was saved.
    """

    name: str
    job: Job
    before: Array
    earlier: Origin | None

    @property
    def initial(self) -> Array:
        """The values of rank 0's new replica before it."""
        return self.job.initial_of_resumed(0)[self.name].astype(np.float64)

    def evidence(self, expected: Array, rank: int) -> Evidence:
        known: list[tuple[Cause, Array]] = [(causes.LOADED_LATEST(), self.before[rank])]
        known += [
            (causes.NOT_LOADED(rank=other), self.job.initial_of_resumed(other)[self.name].astype(np.float64))
            for other in dict.fromkeys((rank, 0))
        ]
        known += self.earlier.evidence(expected, rank).alternatives if self.earlier else ()
        known.append((causes.STATE_OF_CONSTRUCTION(), self.job.initial(0)[self.name].astype(np.float64)))
        return Evidence(len(self.before), alternatives=tuple(known))


def norms_gone_wrong(history: History, names: Iterable[str], max_norm: float) -> Alternatives:
    """names: of the parameters of whose gradients the norm was taken."""
    own = {name: history.own(name) for name in names}
    flat = {name: gradient.reshape(len(gradient), -1) for name, gradient in own.items() if gradient is not None}
    if not flat:
        return ()
    each = np.concatenate([*flat.values()], axis=1)
    local = np.sqrt((each**2).sum(axis=1))
    mean = each.mean(axis=0)
    norm = np.sqrt((mean**2).sum())
    squares = {name: (gradient.mean(axis=0) ** 2).sum() for name, gradient in flat.items()}
    norms = np.sqrt([*squares.values()])
    size = len(local)
    told = [
        (causes.NORM_IS_LARGEST(), abs(mean).max(initial=0.0)),
        (causes.NORM_IS_SUM(), abs(mean).sum()),
        (causes.NORM_IS_SUM_OF_NORMS(), norms.sum()),
        (causes.NORM_SQUARED_AGAIN(), np.sqrt((norms**4).sum())),
        *((causes.NORM_COUNTS_TWICE(parameter=name), np.sqrt(norm**2 + square)) for name, square in squares.items()),
        *((causes.NORM_LEAVES_OUT(parameters=(name,)), np.sqrt(norm**2 - square)) for name, square in squares.items()),
    ]
    told += [
        (causes.NORM_LEAVES_OUT(parameters=tuple(left)), np.sqrt(norm**2 - sum(squares[name] for name in left)))
        for left in _of_layers(squares)
    ]
    if size > 1:
        told.append((causes.NORM_SUMMED_OVER_RANKS(world_size=size), np.sqrt(size) * norm))
    return (
        *((cause, np.full_like(local, number)) for cause, number in told),
        (causes.NORM_OF_OWN(), local),
        (causes.NORM_LARGEST_OF_RANKS(), np.full_like(local, local.max())),
        (causes.NORM_AFTER_CLIP(), np.full_like(local, min(norm, max_norm))),
        (causes.NORM_STALE(), np.full_like(local, norm)),
        (causes.NORM_SQUARE(), np.full_like(local, norm**2)),
        (causes.NORM_OF_ONE(), np.full_like(local, norms.max())),
    )


def _of_layers(names: Iterable[str]) -> Iterator[list[str]]:
    """The parameters of each layer that has several, and of every two of a few layers."""
    layers: dict[str, list[str]] = {}
    for name in names:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    yield from (several for several in layers.values() if len(several) > 1)
    if len(layers) <= _FEW_LAYERS:
        yield from (first + second for first, second in combinations(layers.values(), 2))


_FEW_LAYERS = 8
"""Of more, some two would explain a number by chance."""
