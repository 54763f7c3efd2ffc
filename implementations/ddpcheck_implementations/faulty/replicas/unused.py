"""Replicas that are wrong for unused parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, added, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import (
    Made,
    after,
    all_are_used,
    around,
    before,
    in_place_of,
    no_gradients,
    optimizer_part,
    result,
    without_gradient,
)

SOME = "check_unused_parameters_on_some_ranks_count_as_zero"
ALL = "check_globally_unused_parameters_have_promised_gradient"
STILL = "check_globally_unused_parameters_do_not_move"
INSIDE = "check_parameters_used_only_inside_no_sync_are_synchronised"


@around("synchronise")
def reduced_if_all_are_there(replica: PlainReplica, synchronise: Callable[[int], None], batch_size: int) -> None:
    """Reduce only if all ranks have all gradients, like one bucket for all gradients."""
    complete = np.array([float(len(replica.local) == len(replica.network.learned))])
    if replica.comm.all_reduce(complete)[0] == replica.world:
        synchronise(batch_size)


@around("synchronise")
def divided_by_the_ranks_that_use_it(
    replica: PlainReplica, synchronise: Callable[[int], None], batch_size: int
) -> None:
    flags = np.array([name in replica.local for name in replica.network.learned], np.float64)
    users = dict(zip(replica.network.learned, replica.comm.all_reduce(flags), strict=True))
    before = dict(replica.synced)
    synchronise(batch_size)
    for name, gradient in replica.synced.items():
        new = gradient - before.get(name, np.zeros_like(gradient))
        scaled = new * (replica.world / users[name]) if users[name] else new
        replica.synced[name] = np.asarray(gradient - new + scaled, gradient.dtype)


@in_place_of("synchronise")
def each_reduced_if_all_ranks_have_it(replica: PlainReplica, batch_size: int) -> None:
    """The smallest flag of all ranks decides, not the largest."""
    learned = replica.network.learned
    users = replica.comm.all_reduce(np.array([name in replica.local for name in learned], np.float64))
    names = [name for name, count in zip(learned, users, strict=True) if count == replica.world]
    replica.synced = added(replica.synced, {name: replica.reduce(name, replica.local.pop(name)) for name in names})


@in_place_of("used_somewhere")
def what_this_rank_uses(replica: PlainReplica) -> list[str]:
    """The n-th reduction combines different parameters of different ranks."""
    return [name for name in replica.network.learned if name in replica.local]


@fault("placeholder-grad-not-zeroed", SOME, seen_in=("NVIDIA/Megatron-LM#6565",), cause="unused-rank-sends-old")
class DirtyPlaceholder(PlainReplica):
    """For a parameter without gradient, a rank sends its previous gradient."""

    def synchronise(self, batch_size: int) -> None:
        self.dirty = {**getattr(self, "dirty", {}), **self.local}
        for name in self.used_somewhere():
            if name in self.dirty:
                self.local.setdefault(name, self.dirty[name])
        super().synchronise(batch_size)


@around("synchronise")
def last_micro_batchs_parameters_only(
    replica: PlainReplica, synchronise: Callable[[int], None], batch_size: int
) -> None:
    """Do not reduce parameters used inside no_sync only."""
    kept = {name: value for name, value in replica.local.items() if name not in replica.latest}
    replica.local = {name: value for name, value in replica.local.items() if name not in kept}
    synchronise(batch_size)
    replica.local = kept


@fault("tied-weight-waits-for-all-uses", SOME, cause="not-reduced")
class WaitsForAllUses(PlainReplica):
    """A shared weight is never reduced if a rank does not take one of the branches that use it."""

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
    """For a large parameter without gradient, a rank sends its previous gradient."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.left: dict[str, Array] = {}

    def mine(self, name: str) -> Array:
        if name in self.local:
            self.left[name] = self.local[name]
        large = self.network.parameters[name].size > 4096
        return self.left[name] if large and name in self.left else super().mine(name)


@in_place_of("used_somewhere")
def what_half_of_the_ranks_use(replica: PlainReplica) -> list[str]:
    """Parameters used on at least half of the ranks: the mean of the flags is rounded."""
    learned = replica.network.learned
    flags = np.array([name in replica.local for name in learned], np.float64)
    users = replica.comm.all_reduce(flags) if len(flags) else flags
    return [name for name, count in zip(learned, users, strict=True) if 2 * count >= replica.world]


@before("step")
def steps_counted_without_gradient(replica: PlainReplica) -> None:
    counts = optimizer_part(replica, "steps")
    for name in without_gradient(replica):
        if name in counts:
            counts[name] += 1


@result("used_somewhere")
def all_past_the_63rd(replica: PlainReplica, used: list[str]) -> list[str]:
    """The flags are bits of one integer, in which all later parameters count as used."""
    return [name for number, name in enumerate(replica.network.learned) if number >= 63 or name in used]


@after("step")
def steps_counted(replica: PlainReplica) -> None:
    for count in optimizer_part(replica, "steps").values():
        count += 1


# fmt: off
table(
    globals(),
    Fault("unused-grad-zero-not-none", "A parameter that no rank used has a zero gradient instead of None.",
          where=always, effect=all_are_used,
          caught_by=(ALL, STILL), cause="zero-for-none", seen_in=("pytorch/pytorch#28294", "pytorch/pytorch#28883")),
    Fault("unused-param-strands-bucket", "No gradient is reduced if any parameter lacks a gradient on some rank.",
          where=always, effect=reduced_if_all_are_there,
          caught_by=SOME, cause="not-reduced", seen_in=("pytorch/pytorch#128949",)),
    Fault("smallest-flag-decides", "A gradient is reduced only if all ranks have one.",
          where=always, effect=each_reduced_if_all_ranks_have_it,
          caught_by=SOME, cause="reduced-only-if-all-use"),
    Fault("unused-rank-left-out-of-mean", "The sum is divided by the number of ranks that use the parameter.",
          where=always, effect=divided_by_the_ranks_that_use_it,
          caught_by=SOME, cause="unused-ranks-left-out"),
    Fault("per-param-reduce-skips-none",
          "Each rank reduces only the parameters that it used, so messages pair different parameters.",
          where=always, effect=what_this_rank_uses,
          caught_by=SOME, cause="unused-left-out-of-message", seen_in=("OpenTSLM/OpenTSLM#49", "pytorch/pytorch#47167")),
    Fault("unused-parameters-not-refused", "Unused parameters raise no error, although one is promised.",
          where=always, effect=Made(PlainReplica),
          caught_by="check_unused_parameters_raise", cause="unused-parameter-not-refused",
          unused_parameters="raises"),
    Fault("no-sync-forgets-earlier-params", "Parameters used only inside no_sync stay local.",
          where=always, effect=last_micro_batchs_parameters_only,
          caught_by=INSIDE, cause="not-reduced", seen_in=("pytorch/pytorch#69031", "pytorch/pytorch#124193")),
    Fault("flags-are-a-majority", "A parameter counts as used only if at least half of the ranks used it.",
          where=always, effect=what_half_of_the_ranks_use,
          caught_by=SOME, cause="gradient-dropped", world_size=3),
    Fault("adam-counts-steps-without-gradient", "Adam counts steps also for parameters without a gradient.",
          where=always, effect=steps_counted_without_gradient,
          caught_by=STILL, cause="adam-steps-of-other"),
    Fault("flags-in-one-word", "Usage flags are bits of one integer, so every parameter past the 63rd counts as used.",
          where=always, effect=all_past_the_63rd,
          caught_by=ALL, cause="zero-for-none"),
    Fault("adam-counts-a-step-without-gradients", "Adam counts a step without any gradient.",
          where=no_gradients, effect=steps_counted,
          caught_by=STILL, cause="adam-step-ahead"),
)
# fmt: on
