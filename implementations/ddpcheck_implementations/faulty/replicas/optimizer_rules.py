"""Replicas with optimizers of wrong settings, a wrong formula or too few bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ddpcheck.job import OptimizerSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, added
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import (
    ReplicaEffect,
    after,
    around,
    gradients_put_back,
    in_place_of,
    optimizer_part,
    settings,
)
from .batch_norm import STEPS
from .optimizing import ADAM

SGD = "check_sgd_matches_one_process"


def made_with(changed: Callable[[OptimizerSpec, int], dict[str, Any]]) -> ReplicaEffect:
    """Change the optimizer's settings: changed(settings, world size)."""

    def done(use: Any) -> None:
        use.rightly()
        optimizer = use.replica.optimizer
        optimizer._spec = replace(optimizer._spec, **changed(optimizer._spec, use.world))
        optimizer.lr = optimizer._spec.lr

    return ReplicaEffect("start", done)


def usual_betas(spec: OptimizerSpec, world: int) -> dict[str, Any]:
    return {"betas": (0.9, 0.999)}


def swapped_betas(spec: OptimizerSpec, world: int) -> dict[str, Any]:
    return {"betas": spec.betas[::-1]}


def usual_eps(spec: OptimizerSpec, world: int) -> dict[str, Any]:
    return {"eps": 1e-8}


def no_momentum(spec: OptimizerSpec, world: int) -> dict[str, Any]:
    return {"momentum": 0.0}


def weight_decay_twice(spec: OptimizerSpec, world: int) -> dict[str, Any]:
    """The optimizer and the loss both apply weight decay."""
    return {"weight_decay": 2 * spec.weight_decay}


def learning_rate_times_world_size(spec: OptimizerSpec, world: int) -> dict[str, Any]:
    return {"lr": spec.lr * world}


@dataclass(frozen=True)
class Moments:
    """Adam's moments of one parameter after a step. largest: the largest second moment so far."""

    spec: OptimizerSpec
    first: Array
    second: Array
    largest: Array
    steps: int

    def corrections(self, steps: int) -> tuple[float, float]:
        first, second = (1 - beta**steps for beta in self.spec.betas)
        return first, second

    def ratio(self, second: Array, steps: int) -> Array:
        """The step's direction for this second moment and number of steps."""
        one, two = self.corrections(steps)
        return np.asarray(self.first / one / (np.sqrt(second / two) + self.spec.eps))


def adam(direction: Callable[[Moments], Array]) -> ReplicaEffect:
    """Change Adam's direction; its moments stay right."""

    def done(use: Any) -> None:
        replica, before = use.replica, use.replica.parameters()
        use.rightly()
        first, second, steps = (optimizer_part(replica, part) for part in ("first", "second", "steps"))
        largest = replica.__dict__.setdefault("largest", {})
        for name in replica._shown() if steps else ():
            largest[name] = np.maximum(largest.get(name, 0.0), second[name])
            found = Moments(settings(replica), first[name], second[name], largest[name], int(steps[name]))
            replica.network.parameters[name][...] = before[name] - settings(replica).lr * direction(found)

    return ReplicaEffect("step", done)


def by_the_largest_second_moment(moments: Moments) -> Array:
    return moments.ratio(moments.largest, moments.steps)


def by_the_correction_of_the_first_step(moments: Moments) -> Array:
    return moments.ratio(moments.second, 1)


def with_eps_inside_the_root(moments: Moments) -> Array:
    one, two = moments.corrections(moments.steps)
    return np.asarray(moments.first / one / np.sqrt(moments.second / two + moments.spec.eps))


def with_eps_before_the_correction(moments: Moments) -> Array:
    """The order that Adam's paper calls more efficient."""
    one, two = moments.corrections(moments.steps)
    return np.asarray(moments.first * np.sqrt(two) / one / (np.sqrt(moments.second) + moments.spec.eps))


@around("step")
def dampened(replica: PlainReplica, step: Callable[[], None]) -> None:
    """After the first step, the gradient enters the momentum with weight 1 - momentum."""
    spec, velocity, parameters = settings(replica), optimizer_part(replica, "velocity"), replica.network.parameters
    with gradients_put_back(replica):
        for gradients in (replica.synced, replica.local):
            for name in gradients.keys() & velocity.keys():
                decay = spec.weight_decay * parameters[name]
                gradients[name] = np.asarray((gradients[name] + decay) * (1 - spec.momentum) - decay, decay.dtype)
        step()


@around("step")
def ahead_by_momentum(replica: PlainReplica, step: Callable[[], None]) -> None:
    """Nesterov momentum: step by the gradient + momentum * velocity."""
    spec, before = settings(replica), replica.parameters()
    step()
    for name, velocity in optimizer_part(replica, "velocity").items():
        if name in replica._shown():
            decayed = replica._shown()[name] + spec.weight_decay * before[name]
            replica.network.parameters[name][...] = before[name] - spec.lr * (decayed + spec.momentum * velocity)


@after("step")
def momentum_in_float16(replica: PlainReplica) -> None:
    for velocity in optimizer_part(replica, "velocity").values():
        velocity[...] = velocity.astype(np.float16)


@after("step")
def parameters_in_float16(replica: PlainReplica) -> None:
    for parameter in replica.network.parameters.values():
        parameter[...] = parameter.astype(np.float16)


@around("step")
def weight_decay_beside_the_gradient(replica: PlainReplica, step: Callable[[], None]) -> None:
    """Like AdamW: weight decay does not enter the momentum."""
    optimizer: Any = replica.optimizer
    spec = settings(replica)
    for name in replica._shown():
        replica.network.parameters[name] *= 1 - spec.lr * spec.weight_decay
    optimizer._spec = replace(spec, weight_decay=0.0)
    step()
    optimizer._spec = spec


@in_place_of("step")
def gradients_added_up(replica: PlainReplica) -> None:
    """The sum is a copy in the optimizer, which zero_grad() does not clear."""
    kept = replica.__dict__["kept"] = added(replica.__dict__.get("kept", {}), replica._shown())
    replica.optimizer.step(kept)


# fmt: off
table(
    globals(),
    Fault("adam-with-betas-of-the-paper", "Adam ignores the requested betas and uses 0.9 and 0.999.",
          where=always, effect=made_with(usual_betas),
          caught_by=ADAM, cause="adam-betas-fixed"),
    Fault("adam-with-betas-in-the-other-order", "Adam swaps its two betas.",
          where=always, effect=made_with(swapped_betas),
          caught_by=ADAM, cause="adam-betas-swapped"),
    Fault("adam-with-the-usual-eps", "Adam ignores the requested eps and uses 1e-8.",
          where=always, effect=made_with(usual_eps),
          caught_by=ADAM, cause="adam-eps-fixed"),
    Fault("adam-with-eps-inside-the-root", "Adam adds eps inside the root.",
          where=always, effect=adam(with_eps_inside_the_root),
          caught_by=ADAM, cause="adam-eps-inside-root"),
    Fault("adam-with-eps-before-the-correction", "Adam adds eps before the bias correction.",
          where=always, effect=adam(with_eps_before_the_correction),
          caught_by=ADAM, cause="adam-epsilon-hat"),
    Fault("adam-corrects-as-in-the-first-step", "Adam uses the bias correction of the first step in every step.",
          where=always, effect=adam(by_the_correction_of_the_first_step),
          caught_by=ADAM, cause="adam-steps-restart"),
    Fault("adam-is-amsgrad", "Adam uses the largest second moment so far, as AMSGrad does.",
          where=always, effect=adam(by_the_largest_second_moment),
          caught_by=ADAM, cause="adam-amsgrad"),
    Fault("optimizer-rate-times-world-size", "The learning rate is multiplied by the world size.",
          where=always, effect=made_with(learning_rate_times_world_size),
          caught_by=ADAM, cause="learning-rate-scaled", world_size=3),
    Fault("rate-times-world-size-with-an-idle-rank", "As the one before, where a rank has no samples.",
          where=always, effect=made_with(learning_rate_times_world_size),
          caught_by="check_uneven_batches_count_equally_per_rank", cause="update-scaled"),
    Fault("optimizer-without-momentum", "The optimizer ignores momentum.",
          where=always, effect=made_with(no_momentum),
          caught_by=(STEPS, SGD), cause="momentum-missing"),
    Fault("weight-decay-in-optimizer-and-loss", "Weight decay is applied twice.",
          where=always, effect=made_with(weight_decay_twice),
          caught_by=(SGD, STEPS), cause="weight-decay-repeated"),
    Fault("weight-decay-beside-the-gradient", "Weight decay is applied to the parameters directly, as in AdamW.",
          where=always, effect=weight_decay_beside_the_gradient,
          caught_by=(SGD, ADAM), cause="weight-decay-decoupled"),
    Fault("momentum-dampened", "The gradient enters the momentum with weight 1 - momentum.",
          where=always, effect=dampened,
          caught_by=SGD, cause="momentum-dampened"),
    Fault("momentum-of-nesterov", "SGD uses Nesterov momentum.",
          where=always, effect=ahead_by_momentum,
          caught_by=SGD, cause="nesterov"),
    Fault("momentum-in-float16", "Momentum is stored in float16.",
          where=always, effect=momentum_in_float16,
          caught_by=SGD, cause="momentum-float16"),
    Fault("parameters-in-float16", "Parameters are rounded to float16 after each step.",
          where=always, effect=parameters_in_float16,
          caught_by=SGD, cause="held-in"),
    Fault("optimizer-adds-up-gradients", "The optimizer adds each gradient to a sum that zero_grad() does not clear.",
          where=always, effect=gradients_added_up,
          caught_by=SGD, cause="update-of-all-gradients"),
)
# fmt: on
