"""The seam of a whole replica: an effect on one of its methods in one circumstance.

`before`, `after`, `given`, `result`, `in_place_of` and `around` make an effect of a function. Below them are the seams that
several faults share: tensors at construction, checkpoints, and the norm of clipping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ddpcheck.job import OptimizerSpec
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from .circumstances import Circumstance

Function = Callable[..., Any]


@dataclass(frozen=True)
class Use:
    """One call of a method. right: the correct method. number: the call's number, from 1."""

    replica: Any
    arguments: tuple[Any, ...]
    right: Function
    number: int

    @property
    def argument(self) -> Any:
        return self.arguments[0]

    @property
    def rank(self) -> int:
        return int(self.replica.rank)

    @property
    def world(self) -> int:
        return int(self.replica.world)

    def rightly(self) -> Any:
        return self.right(*self.arguments)


@dataclass(frozen=True)
class ReplicaEffect:
    """method: the wrong method. done: the function in its place. base, attributes: the correct class, and changes to it."""

    method: str
    done: Callable[[Use], Any]
    base: type[PlainReplica] = PlainReplica
    attributes: Mapping[str, Any] = field(default_factory=dict)
    register = staticmethod(fault)

    def of(self, base: type[PlainReplica], **attributes: Any) -> ReplicaEffect:
        """The effect on replicas of another class."""
        return replace(self, base=base, attributes=attributes)

    def implemented(self, where: Circumstance) -> type[Any]:
        base = _counting_steps(self.base)
        right = getattr(base, self.method, None)

        def wrong(replica: Any, *arguments: Any) -> Any:
            replica.calls += 1
            use = Use(replica, arguments, lambda *given: right(replica, *given) if right else None, replica.calls)
            return self.done(use) if where(use) else use.rightly()

        return type("Wrong", (base,), {**self.attributes, "calls": 0, self.method: wrong})


def _counting_steps(base: type[PlainReplica]) -> type[Any]:
    """The class with an attribute `steps`: the number of steps taken."""

    def step(replica: Any) -> None:
        base.step(replica)
        replica.steps += 1

    return type(base.__name__, (base,), {"steps": 0, "step": step})


class Made:
    """A class, possibly with other attributes, that breaks a promise, or is unusual but correct."""

    register = staticmethod(fault)

    def __init__(self, base: type[PlainReplica], **attributes: Any) -> None:
        self.base, self.attributes = base, attributes

    def implemented(self, where: Circumstance) -> type[Any]:
        return type("Made", (self.base,), self.attributes)


def before(method: str) -> Callable[[Function], ReplicaEffect]:
    """Change the replica before the call: function(replica, *arguments)."""

    def make(function: Function) -> ReplicaEffect:
        def done(use: Use) -> Any:
            function(use.replica, *use.arguments)
            return use.rightly()

        return ReplicaEffect(method, done)

    return make


def after(method: str) -> Callable[[Function], ReplicaEffect]:
    """Change the replica after the call: function(replica, *arguments)."""

    def make(function: Function) -> ReplicaEffect:
        def done(use: Use) -> Any:
            found = use.rightly()
            function(use.replica, *use.arguments)
            return found

        return ReplicaEffect(method, done)

    return make


def given(method: str) -> Callable[[Function], ReplicaEffect]:
    """Change the method's argument: function(replica, argument)."""

    def make(function: Function) -> ReplicaEffect:
        return ReplicaEffect(method, lambda use: use.right(function(use.replica, *use.arguments)))

    return make


def result(method: str) -> Callable[[Function], ReplicaEffect]:
    """Change the method's result: function(replica, result)."""

    def make(function: Function) -> ReplicaEffect:
        return ReplicaEffect(method, lambda use: function(use.replica, use.rightly()))

    return make


def in_place_of(method: str) -> Callable[[Function], ReplicaEffect]:
    """Replace the method: function(replica, *arguments)."""

    def make(function: Function) -> ReplicaEffect:
        return ReplicaEffect(method, lambda use: function(use.replica, *use.arguments))

    return make


def around(method: str) -> Callable[[Function], ReplicaEffect]:
    """Replace the method by a function that can call the correct one: function(replica, right, *arguments)."""

    def make(function: Function) -> ReplicaEffect:
        return ReplicaEffect(
            method,
            lambda use: function(use.replica, use.right, *use.arguments),
        )

    return make


# ---------------------------------------------------------------------------------------------------- circumstances

inside_no_sync = Circumstance("inside no_sync", lambda use: not use.replica.syncing)
freezing = Circumstance("when layers are frozen", lambda use: not use.arguments[1])
no_gradients = Circumstance("without any gradient", lambda use: not use.replica._shown())
has_optimizer_state = Circumstance("after a step", lambda use: bool(use.replica.optimizer.state()))
takes_ids = Circumstance("for a batch of ids", lambda use: use.argument.inputs.dtype.kind == "i")
has_labels = Circumstance("for a batch of labels", lambda use: use.argument.targets.dtype.kind == "i")
takes_floats = Circumstance("for a batch of floats", lambda use: use.argument.inputs.dtype.kind == "f")
without_samples = Circumstance("without samples", lambda use: not len(use.argument.inputs))


def from_step(count: int) -> Circumstance:
    return Circumstance(f"after {count} steps or more", lambda use: use.replica.steps >= count)


def steps_taken(count: int) -> Circumstance:
    return Circumstance(f"after {count} steps", lambda use: use.replica.steps == count)


def more_samples(count: int) -> Circumstance:
    return Circumstance(f"with more than {count} samples", lambda use: len(use.argument.inputs) > count)


def model_of(dtype: str) -> Circumstance:
    return Circumstance(
        f"in {dtype}", lambda use: next(iter(use.replica.network.parameters.values())).dtype == np.dtype(dtype)
    )


def keeps(part: str) -> Circumstance:
    """The optimizer has this part of state."""
    return Circumstance(f"with the optimizer's {part}", lambda use: hasattr(use.replica.optimizer, f"_{part}"))


# ------------------------------------------------------------------------------------- effects on a replica


def nothing(replica: PlainReplica, *arguments: Any) -> None:
    """Do nothing."""


def gradients_dropped(replica: PlainReplica, *arguments: Any) -> None:
    replica.zero_grad()


def local_gradients_dropped(replica: PlainReplica, *arguments: Any) -> None:
    replica.local = {}


def no_sync_ended(replica: PlainReplica, *arguments: Any) -> None:
    replica.syncing = True


def optimizer_state_dropped(replica: PlainReplica, *arguments: Any) -> None:
    replica.optimizer.load_state({})


def without_gradient(replica: PlainReplica) -> list[str]:
    """Names of the parameters without gradient."""
    shown = replica._shown()
    return [name for name in replica.network.parameters if name not in shown]


def settings(replica: Any) -> OptimizerSpec:
    """The optimizer's settings."""
    found: OptimizerSpec = replica.optimizer._spec
    return found


def optimizer_part(replica: PlainReplica, part: str) -> dict[str, Array]:
    """The optimizer's arrays of one kind, by parameter: velocity, first, second, steps."""
    found: dict[str, Array] = getattr(replica.optimizer, f"_{part}", {})
    return found


@contextmanager
def gradients_put_back(replica: PlainReplica) -> Iterator[None]:
    """The gradients are afterwards those from before."""
    before = [(gradients, dict(gradients)) for gradients in (replica.synced, replica.local)]
    yield
    for gradients, kept in before:
        gradients.update(kept)


@in_place_of("predict")
def predicted_in_training_mode(replica: PlainReplica, batch: Any) -> Array:
    return replica.network._forward(batch.inputs, batch.branches, training=True)


@in_place_of("used_somewhere")
def all_are_used(replica: PlainReplica) -> list[str]:
    PlainReplica.used_somewhere(replica)
    return list(replica.network.learned)


@before("synchronise")
def weighted_by_batch_size(replica: PlainReplica, batch_size: int) -> None:
    sizes = replica.comm.all_reduce(np.array([float(batch_size)]))
    factor = batch_size * replica.world / float(sizes[0])
    replica.local = {name: np.asarray(gradient * factor, gradient.dtype) for name, gradient in replica.local.items()}


def sharded_step(sources: Callable[[Any, dict[str, int]], Mapping[str, int]]) -> ReplicaEffect:
    """Each rank steps its shard of the parameters. sources(replica, owners): the rank that then broadcasts each parameter."""

    def stepped(use: Use) -> None:
        replica, shown = use.replica, use.replica._shown()
        owners = {name: number % replica.world for number, name in enumerate(replica.network.parameters)}
        replica.optimizer.step({name: shown[name] for name in shown if owners[name] == replica.rank})
        for name, source in sources(replica, owners).items():
            parameter = replica.network.parameters[name]
            parameter[...] = replica.comm.broadcast(parameter, source)

    return ReplicaEffect("step", stepped)


# -------------------------------------------------------------------------------------------- tensors at construction


@dataclass(frozen=True)
class Tensor:
    """A parameter or buffer at construction."""

    replica: Any
    name: str
    array: Array

    @property
    def rank(self) -> int:
        return int(self.replica.rank)

    @property
    def parameter(self) -> bool:
        return self.name in self.replica.network.parameters

    def of_rank_0(self, array: Array) -> Array:
        return np.asarray(self.replica.comm.broadcast(array))

    def broadcast(self) -> None:
        self.array[...] = self.of_rank_0(self.array)


@dataclass(frozen=True)
class ConstructionEffect:
    """done: changes the tensor in place of the broadcast from rank 0."""

    done: Callable[[Tensor], None]
    register = staticmethod(fault)

    def implemented(self, where: Circumstance) -> type[Any]:
        def start(replica: PlainReplica, model: ModelSpec) -> None:
            for name, array in replica.network.tensors.items():
                tensor = Tensor(replica, name, array)
                if where(tensor):
                    self.done(tensor)
                else:
                    tensor.broadcast()

        return type("Wrong", (PlainReplica,), {"start": start})


def constructing(done: Callable[[Tensor], None]) -> ConstructionEffect:
    return ConstructionEffect(done)


is_parameter = Circumstance("parameters", lambda tensor: tensor.parameter)
is_buffer = Circumstance("buffers", lambda tensor: not tensor.parameter)
frozen = Circumstance(
    "frozen parameters", lambda tensor: tensor.parameter and tensor.name not in tensor.replica.network.learned
)


@constructing
def not_broadcast(tensor: Tensor) -> None:
    """Keep the rank's own value."""


# ------------------------------------------------------------------------------------------------------- checkpoints


def entries(state: Mapping[str, Array], prefix: str, change: Callable[[Array], Any]) -> dict[str, Array]:
    """The state, with its entries of this prefix changed."""
    return {name: np.asarray(change(value)) if name.startswith(prefix) else value for name, value in state.items()}


def saved(prefix: str, change: Callable[[Array], Any]) -> ReplicaEffect:
    """Change entries of this prefix in state()'s result."""
    return ReplicaEffect("state", lambda use: entries(use.rightly(), prefix, change))


def loaded(prefix: str, change: Callable[[Array], Any]) -> ReplicaEffect:
    """Change entries of this prefix in load_state()'s argument."""
    return ReplicaEffect("load_state", lambda use: use.right(entries(use.argument, prefix, change)))


def not_saved(prefix: str) -> ReplicaEffect:
    """Leave entries of this prefix out of state()'s result."""

    def lacking(use: Use) -> dict[str, Array]:
        return {name: value for name, value in use.rightly().items() if not name.startswith(prefix)}

    return ReplicaEffect("state", lacking)


def loading(changed: Callable[[Any, Mapping[str, Array]], dict[str, Array]]) -> ReplicaEffect:
    """Add or replace these entries in load_state()'s argument."""
    return ReplicaEffect(
        "load_state",
        lambda use: use.right({**use.argument, **changed(use.replica, use.argument)}),
    )


# ---------------------------------------------------------------------------------------------------------- clipping


def squares(arrays: Any) -> float:
    """The sum of the squares of all elements."""
    return sum(float(np.sum(np.square(array, dtype=np.float64))) for array in arrays)


def norm_of_all(replica: PlainReplica) -> float:
    return float(np.sqrt(squares(replica._shown().values())))


def usual_factor(max_norm: float, norm: float) -> float:
    return min(1.0, max_norm / norm) if norm else 1.0


def clipped_by(
    norm: Callable[[Any], float] = norm_of_all, factor: Callable[[float, float], float] = usual_factor
) -> ReplicaEffect:
    """clip() takes another norm, or scales by another factor: factor(max_norm, norm)."""

    def done(use: Use) -> float:
        measured = norm(use.replica)
        use.replica.scale(factor(use.argument, measured))
        return float(measured)

    return ReplicaEffect("clip", done)


def clipping_each(clipped: Callable[[Array, float], Any]) -> ReplicaEffect:
    """clip() clips each gradient separately: clipped(gradient, max_norm). The returned norm is right."""

    def done(use: Use) -> float:
        norm = norm_of_all(use.replica)
        for gradients in (use.replica.synced, use.replica.local):
            gradients.update({name: np.asarray(clipped(g, use.argument), g.dtype) for name, g in gradients.items()})
        return norm

    return ReplicaEffect("clip", done)
