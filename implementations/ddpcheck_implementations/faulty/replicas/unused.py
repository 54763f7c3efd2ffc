"""Parameters without gradient, handled wrongly."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.values import Array

from ..base import PlainReplica, fault
from .optimizing import WithSettings

SOME = "check_unused_parameters_on_some_ranks_count_as_zero"
ALL = "check_globally_unused_parameters_have_promised_gradient"
STILL = "check_globally_unused_parameters_do_not_move"
INSIDE = "check_parameters_used_only_inside_no_sync_are_synchronised"


@fault(
    "unused-grad-zero-not-none",
    ALL,
    STILL,
    seen_in=("pytorch/pytorch#28294", "pytorch/pytorch#28883"),
    cause="zero-for-none",
)
class ZeroNotNone(PlainReplica):
    """What no rank used gets a gradient of zeros, which lets weight decay and momentum move it."""

    def used_somewhere(self) -> list[str]:
        super().used_somewhere()
        return list(self.network.learned)


@fault("unused-param-strands-bucket", SOME, seen_in=("pytorch/pytorch#128949",), cause="not-reduced")
class BucketStranded(PlainReplica):
    """One parameter without gradient keeps the whole bucket from being reduced."""

    def synchronise(self, batch_size: int) -> None:
        complete = np.array([float(len(self.local) == len(self.network.learned))])
        if self.comm.all_reduce(complete)[0] == self.world:
            super().synchronise(batch_size)


@fault("unused-rank-left-out-of-mean", SOME, cause="summed-not-averaged")
class MeanOfUsers(PlainReplica):
    """Divides by the number of ranks that used the parameter."""

    def synchronise(self, batch_size: int) -> None:
        flags = np.array([name in self.local for name in self.network.learned], np.float64)
        users = dict(zip(self.network.learned, self.comm.all_reduce(flags), strict=True))
        before = dict(self.synced)
        super().synchronise(batch_size)
        for name, gradient in self.synced.items():
            new = gradient - before.get(name, np.zeros_like(gradient))
            scaled = new * (self.world / users[name]) if users[name] else new
            self.synced[name] = np.asarray(gradient - new + scaled, gradient.dtype)


@fault(
    "per-param-reduce-skips-none",
    SOME,
    seen_in=("OpenTSLM/OpenTSLM#49", "pytorch/pytorch#47167"),
    cause="unused-left-out-of-message",
)
class SkipsNone(PlainReplica):
    """Reduces what it has, one after the other: the n-th reduction pairs different parameters on different ranks."""

    def used_somewhere(self) -> list[str]:
        return [name for name in self.network.learned if name in self.local]


@fault("placeholder-grad-not-zeroed", SOME, seen_in=("NVIDIA/Megatron-LM#6565",), cause="unused-rank-sends-old")
class DirtyPlaceholder(PlainReplica):
    """For a parameter without gradient it sends a buffer that still holds its last gradient."""

    def synchronise(self, batch_size: int) -> None:
        self.dirty = {**getattr(self, "dirty", {}), **self.local}
        for name in self.used_somewhere():
            if name in self.dirty:
                self.local.setdefault(name, self.dirty[name])
        super().synchronise(batch_size)


@fault(
    "unused-parameters-not-refused",
    "check_unused_parameters_raise",
    cause="unused-parameter-not-refused",
    unused_parameters="raises",
)
class NeverRaises(PlainReplica):
    """Promises to raise when a parameter has no gradient, and does not."""


@fault(
    "no-sync-forgets-earlier-params",
    INSIDE,
    seen_in=("pytorch/pytorch#69031", "pytorch/pytorch#124193"),
    cause="not-reduced",
)
class ForgetsEarlier(PlainReplica):
    """Reduces only what the last micro-batch used; what was used inside no_sync stays local."""

    def synchronise(self, batch_size: int) -> None:
        kept = {name: value for name, value in self.local.items() if name not in self.latest}
        self.local = {name: value for name, value in self.local.items() if name not in kept}
        super().synchronise(batch_size)
        self.local = kept


@fault("tied-weight-waits-for-all-uses", SOME, cause="not-reduced")
class WaitsForAllUses(PlainReplica):
    """A shared weight is ready when each of its uses was heard of; a branch that a rank does not take never is."""

    def __init__(self, model: ModelSpec, *args: Any) -> None:
        self.uses = [layer for layer in model.layers if isinstance(layer, Linear) and layer.uses and layer.branch]
        super().__init__(model, *args)

    def backward(self, batch: Batch) -> float:
        self.taken = batch.branches
        return super().backward(batch)

    def reduce(self, name: str, gradient: Array) -> Array:
        mean = super().reduce(name, gradient)
        waits = [layer for layer in self.uses if layer.uses == name.rpartition(".")[0]]
        ready = self.comm.all_reduce(np.array([float(all(layer.branch in self.taken for layer in waits))]))
        return mean if ready[0] == self.world else gradient


@fault(
    "large-placeholder-not-zeroed",
    SOME,
    seen_in=("NVIDIA/Megatron-LM#6565",),
    cause="unused-rank-sends-old",
)
class LargePlaceholder(PlainReplica):
    """Large gradients live in memory of their own, which is not cleared: a rank that does not use one sends what is left."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.left: dict[str, Array] = {}

    def mine(self, name: str) -> Array:
        if name in self.local:
            self.left[name] = self.local[name]
        large = self.network.parameters[name].size > 4096
        return self.left[name] if large and name in self.left else super().mine(name)


@fault("flags-are-a-majority", SOME, cause="gradient-dropped", world_size=3)
class Majority(PlainReplica):
    """The mean of the ranks' flags is rounded: what fewer than half of them use counts as unused. With two ranks one is half."""

    def used_somewhere(self) -> list[str]:
        flags = np.array([name in self.local for name in self.network.learned], np.float64)
        users = self.comm.all_reduce(flags) if len(flags) else flags
        return [name for name, count in zip(self.network.learned, users, strict=True) if 2 * count >= self.world]


@fault("adam-counts-steps-without-gradient", STILL, cause="adam-steps-of-other")
class CountsWithoutGradient(WithSettings):
    """One loop counts the steps of all parameters that Adam knows, another updates those that have a gradient."""

    def step(self) -> None:
        counts = getattr(self.optimizer, "_steps", {})
        for name in self.forgotten():
            if name in counts:
                counts[name] += 1
        super().step()


@fault("flags-in-one-word", ALL, cause="zero-for-none")
class InOneWord(PlainReplica):
    """Flags are the bits of an integer: parameters for which it has none are taken for used."""

    def used_somewhere(self) -> list[str]:
        used = super().used_somewhere()
        return [name for number, name in enumerate(self.network.learned) if number >= 63 or name in used]


@fault("adam-counts-a-step-without-gradients", STILL, cause="adam-step-ahead")
class CountsEmptySteps(PlainReplica):
    """A step in which no parameter has a gradient counts in Adam's bias correction."""

    def step(self) -> None:
        super().step()
        if not self._shown():
            for count in getattr(self.optimizer, "_steps", {}).values():
                count += 1
