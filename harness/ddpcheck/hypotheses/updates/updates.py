"""Hypotheses about a wrong parameter: mistakes in its last update. Each gives the parameter on every rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...causes import Cause, gradients
from ...causes import updates as causes
from ...job import OptimizerSpec
from ...oracle.bounded_values import Value
from ...oracle.optimizer import Optimizer
from ...oracle.origins import Update
from ...seeded_values import Array
from ..gradients.clips import clipped_as_asked, clipped_otherwise
from .adam_variants import other_adams
from .optimizer_shards import shards_misplaced

WhatIf = Iterator[tuple[Cause, Array]]


def not_updated(update: Update, expected: Array, rank: int) -> WhatIf:
    """Only possible if the rank's own gradient alone gives no update either."""
    own = update.history.own(update.name)
    alike = (
        own is not None and len(own) > 1 and _equals_no_update(update, stepped(update, gradient=own), expected, rank)
    )
    yield causes.NOT_UPDATED().but("possible") if alike else causes.NOT_UPDATED(), update.before


def by_gradient_clipped_otherwise(update: Update, expected: Array, rank: int) -> WhatIf:
    for cause, gradient in clipped_otherwise(update.clipped, update.name) if update.clipped else ():
        yield cause, stepped(update, gradient=gradient)


def by_some_micro_batches(update: Update, expected: Array, rank: int) -> WhatIf:
    """One of several micro-batches is lost."""
    parts = [done.own[update.name] for done in update.history.since_zero_grad() if update.name in done.own]
    if len(parts) > 1:
        last = np.broadcast_to(parts[-1].mean(axis=0), parts[-1].shape)
        yield gradients.LAST_MICRO_BATCH_ONLY(), stepped(update, gradient=last)
        others = np.broadcast_to(sum(parts[1:-1], parts[0]).mean(axis=0), last.shape)
        yield gradients.LAST_MICRO_BATCH_MISSING(), stepped(update, gradient=others)


def by_old_gradients_too(update: Update, expected: Array, rank: int) -> WhatIf:
    if (whole := update.history.never_zeroed(update.name)) is not None:
        yield causes.GRADIENTS_KEPT(), stepped(update, gradient=whole)


def by_rounded_gradient(update: Update, expected: Array, rank: int) -> WhatIf:
    with np.errstate(over="ignore"):  # as narrow as a wire may be
        halved = update.gradient.astype(np.float16).astype(np.float64)
    yield causes.GRADIENT_IN_FLOAT16(), stepped(update, gradient=halved)


def by_stale_gradient(update: Update, expected: Array, rank: int) -> WhatIf:
    if (stale := update.history.of_the_step_before(update.name)) is not None:
        yield causes.GRADIENT_OF_STEP_BEFORE(), stepped(update, gradient=stale)


def by_gradients_of_ranks(update: Update, expected: Array, rank: int) -> WhatIf:
    """Each rank's own gradient, or the largest; parameters averaged afterwards."""
    own = update.history.own(update.name)
    if len(update.before) == 1 or own is None:
        return
    by_own = stepped(update, gradient=own)
    if not _equals_no_update(update, by_own, expected, rank):
        yield causes.UPDATED_BY_OWN(), by_own
    largest = np.broadcast_to(own.max(axis=0), update.before.shape)
    yield causes.UPDATED_BY_LARGEST(), stepped(update, gradient=largest)
    yield causes.PARAMETERS_AVERAGED(), np.broadcast_to(by_own.mean(axis=0), update.before.shape)


def _equals_no_update(update: Update, by_own: Array, expected: Array, rank: int) -> bool:
    """Whether the rank's own gradient leaves the parameter as before, where it does not give the right value."""
    off = ~np.isclose(by_own[rank], expected)
    return bool(off.any()) and np.array_equal(by_own[rank][off], update.before[rank][off])


def by_another_adam(update: Update, expected: Array, rank: int) -> WhatIf:
    if update.optimizer.spec.name == "adam":
        yield from other_adams(update.name, update.optimizer, update.before, update.gradient)


def scaled_by_world_size(update: Update, expected: Array, rank: int) -> WhatIf:
    """The gradient or the learning rate is a sum over ranks instead of a mean, or the opposite."""
    before, size = update.before, len(update.before)
    factors = ((float(size), "summed, not averaged"), (1 / size, "divided by the world size once too often"))
    for factor, scaled in factors if size > 1 else ():
        by_gradient = stepped(update, gradient=update.gradient * factor)
        by_rate = before + (expected - before[rank]) * factor
        if np.allclose(by_gradient[rank], by_rate[rank]):
            yield causes.GRADIENT_OR_RATE_SCALED(factor=factor, world_size=size), by_gradient
        yield causes.GRADIENT_SCALED(scaled=scaled, factor=factor, world_size=size), by_gradient
        yield causes.RATE_SCALED(factor=factor, world_size=size), by_rate


def updated_twice(update: Update, expected: Array, rank: int) -> WhatIf:
    yield causes.UPDATED_TWICE(), stepped(update, times=2)


def after_wrong_loading(update: Update, expected: Array, rank: int) -> WhatIf:
    """A state was loaded just before: the parameter was not loaded, or other ranks' shards of the optimizer's state
    were.
    """
    if update.initial is None:
        return
    initial = np.broadcast_to(update.initial, update.before.shape)
    yield causes.STEPPED_FROM_INITIAL(), stepped(update, before=initial)
    for cause, misplaced in shards_misplaced(update.name, update.optimizer):
        yield cause, stepped(update, misplaced)


def without_state(update: Update, expected: Array, rank: int) -> WhatIf:
    if update.optimizer.state:
        yield causes.OPTIMIZER_STATE_LOST(), stepped(update, Optimizer(update.optimizer.spec, "float64"))


def by_other_state(update: Update, expected: Array, rank: int) -> WhatIf:
    """A step of zeros came before the first update; or the momentum is rounded, or another parameter's."""
    name, spec, before = update.name, update.optimizer.spec, update.before
    if is_first(update):
        begun = _with(update, spec)
        begun.step(name, Value(before), Value(np.zeros_like(before)))
        yield causes.ZERO_STEP_BEFORE(), stepped(update, begun)
    elif spec.momentum:
        rounded = _with(update, spec)
        rounded.state[name] = Value(rounded.state[name].exact.astype(np.float16).astype(np.float64))
        yield causes.MOMENTUM_IN_FLOAT16(), stepped(update, rounded)
    for other, state in update.optimizer.state.items():
        if spec.momentum and other != name and state.exact.shape == before.shape:
            others = _with(update, spec)
            others.state[name] = state
            yield causes.MOMENTUM_OF_OTHER(parameter=other), stepped(update, others)


def by_shared_momentum(update: Update, expected: Array, rank: int) -> WhatIf:
    """The momentum is another parameter's, which the same step has updated before."""
    spec, done = update.optimizer.spec, update.history.since_zero_grad()
    if not spec.momentum or spec.name != "sgd" or not done:
        return
    for other, value in done[-1].forward.learned.items():
        own = update.history.own(other)
        if other != update.name and own is not None and value.shape == update.before.shape:
            clip, shared = update.clipped, _with(update, spec)
            mean = np.broadcast_to(own.mean(axis=0), own.shape)
            gradient = clipped_as_asked(clip, other) if clip is not None and other in clip.before else mean
            shared.step(other, Value(value), Value(gradient))
            shared.state[update.name] = shared.state[other]
            yield causes.MOMENTUM_SHARED(parameter=other), stepped(update, shared)


def by_other_decay(update: Update, expected: Array, rank: int) -> WhatIf:
    """Weight decay is missing, too large, or decoupled."""
    spec, before = update.optimizer.spec, update.before
    if not spec.weight_decay:
        return
    plain = replace(spec, weight_decay=0.0)
    yield causes.DECAY_MISSING(), stepped(update, _with(update, plain))
    for times in (2, len(before)):
        more = replace(spec, weight_decay=times * spec.weight_decay)
        yield causes.DECAY_TIMES(times=times), stepped(update, _with(update, more))
    decayed = before * (1 - spec.lr * spec.weight_decay)
    yield causes.DECAY_DECOUPLED(), stepped(update, _without_decay(update, plain), decayed)


def by_other_momentum(update: Update, expected: Array, rank: int) -> WhatIf:
    """Momentum is dampened, overwritten by the gradient, or Nesterov's."""
    spec = update.optimizer.spec
    if not spec.momentum:
        return
    plain = _with(update, replace(spec, weight_decay=0.0))
    decayed = update.gradient + spec.weight_decay * update.before
    yield causes.MOMENTUM_DAMPENED(), stepped(update, plain, gradient=decayed * (1 - spec.momentum))
    if update.optimizer.state:
        shared = _with(update, spec)
        shared.state[update.name] = Value(update.gradient)
        yield causes.MOMENTUM_OVERWRITTEN(), stepped(update, shared)
    velocity = (update.before - stepped(update)) / spec.lr
    yield causes.NESTEROV(), np.asarray(update.before - spec.lr * (decayed + spec.momentum * velocity))


def held_in_few_bits(update: Update, expected: Array, rank: int) -> WhatIf:
    with np.errstate(over="ignore"):  # values that overflow become infinite
        narrow = expected.astype(np.float16).astype(np.float64)
    yield causes.HELD_IN(dtype="float16"), np.broadcast_to(narrow, update.before.shape)
    significand, exponent = np.frexp(expected)
    short = np.ldexp(np.rint(significand * 2**8), exponent - 8)
    yield causes.HELD_IN(dtype="bfloat16"), np.broadcast_to(short, update.before.shape)


def is_first(update: Update) -> bool:
    """Whether the optimizer has no state of this parameter."""
    return update.name not in {*update.optimizer.state, *update.optimizer.steps}


def stepped(
    update: Update,
    optimizer: Optimizer | None = None,
    before: Array | None = None,
    gradient: Array | None = None,
    times: int = 1,
) -> Array:
    """The parameter after the update, with something else than was promised."""
    used = (optimizer or update.optimizer).copy()
    parameter = Value(update.before if before is None else before)
    for _ in range(times):
        parameter = used.step(update.name, parameter, Value(update.gradient if gradient is None else gradient))
    return parameter.exact


def _with(update: Update, spec: OptimizerSpec) -> Optimizer:
    made = update.optimizer.copy()
    made.spec = spec
    return made


def _without_decay(update: Update, spec: OptimizerSpec) -> Optimizer:
    """The optimizer without weight decay. The momentum of one update is then without it, too; without momentum SGD ends
    equally.
    """
    made = _with(update, spec)
    if spec.momentum and update.earlier is not None and update.name in made.state:
        decay = update.optimizer.spec.weight_decay * update.earlier
        made.state[update.name] = Value(made.state[update.name].exact - decay)
    return made
