"""Replicas with reductions or steps that are wrong for rare sizes, counts or histories."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, added, fault
from ..engine.circumstances import always, larger
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, after_backwards, own_value, sending, tail_kept_local, through
from ..engine.replicas import after, before, in_place_of, loading

CHANGING = "check_unused_parameters_may_differ_by_rank_and_step"
WHOLE = "check_gradients_of_every_tensor_size_are_exact"
MANY = "check_many_small_tensors_are_trained_exactly"
TIGHT = "check_gradients_are_the_mean_of_local_gradients"
LATER = "check_gradients_stay_exact_after_many_backwards"


@fault("tags-run-out", LATER, cause="stale-gradient")
class TagsRunOut(PlainReplica):
    """Messages are numbered in five bits, so from the 33rd backward on a rank takes an earlier answer."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.answers: dict[int, dict[str, Array]] = {}
        self.backwards = 0

    def synchronise(self, batch_size: int) -> None:
        before = dict(self.synced)
        super().synchronise(batch_size)
        self.answers.setdefault(self.backwards, self.synced)
        self.backwards += 1
        if self.backwards > 32:
            self.synced = added(before, self.answers[self.backwards - 2])


@sending
def largest_hundredth(gradient: Gradient) -> Array:
    array = gradient.array
    smallest = np.sort(np.abs(array), axis=None)[-array.size // 100]
    return np.where(np.abs(array) < smallest, 0, array)


@fault("dropped-when-long-unused", CHANGING, cause="not-reduced")
class DroppedWhenUnused(PlainReplica):
    """A parameter that no rank used three times in a row is never reduced again."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.unused = dict.fromkeys(self.network.learned, 0)

    def used_somewhere(self) -> list[str]:
        used = super().used_somewhere()
        for name, count in self.unused.items():
            self.unused[name] = 0 if name in used and count < 3 else count + (name not in used)
        return used

    def reduce(self, name: str, gradient: Array) -> Array:
        return gradient if self.unused[name] >= 3 else super().reduce(name, gradient)


@after("synchronise")
def names_cut_to_64_letters(replica: PlainReplica, batch_size: int) -> None:
    """Gradients of one shape share an entry if the first 64 letters of their names are equal."""
    synced = replica.synced
    kept = {(name[:64], gradient.shape): gradient for name, gradient in synced.items() if len(name) > 64}
    replica.synced = {name: kept.get((name[:64], gradient.shape), gradient) for name, gradient in synced.items()}


@in_place_of("step")
def first_110_tensors_stepped(replica: PlainReplica) -> None:
    """A fused kernel takes at most 110 tensors in one launch."""
    replica.optimizer.step(dict(list(replica._shown().items())[:110]))


def momentum_by_numbers_sorted_as_text(replica: PlainReplica, state: Mapping[str, Array]) -> dict[str, Array]:
    """The order is 0, 1, 10, 100, 11, ..."""
    prefix = "optimizer.velocity."
    held = [prefix + name for name in replica.network.parameters if prefix + name in state]
    order = sorted(range(len(held)), key=str)
    return {
        name: state[held[number]]
        for name, number in zip(held, order, strict=True)
        if state[held[number]].shape == state[name].shape
    }


@before("backward")
def window_of_64_tensors(replica: PlainReplica, batch: Batch) -> None:
    """Drop all other accumulated gradients."""
    kept = replica.network.learned[:64]
    replica.local = {name: replica.local[name] for name in kept if name in replica.local}


# fmt: off
table(
    globals(),
    Fault("middle-sizes-lose-their-tail",
          "Gradients of 2,000 to 131,071 elements keep their last n % 16 elements local.",
          where=larger(1999) & ~larger((1 << 17) - 1),
          effect=tail_kept_local(lambda gradient: gradient.array.size % 16),
          caught_by=WHOLE, cause="part-not-reduced"),
    Fault("large-gradients-sent-as-float32", "Gradients of more than 1,000 elements are sent as float32.",
          where=larger(1000), effect=through("float32"),
          caught_by=TIGHT, cause="fewer-bits", seen_in=("hpcaitech/ColossalAI#675",)),
    Fault("large-gradients-sparsified", "Of gradients with more than 1,000 elements, only the largest hundredth is sent.",
          where=larger(1000), effect=largest_hundredth,
          caught_by=TIGHT, cause="parts-of-ranks-missing"),
    Fault("local-from-the-hundredth-backward-on", "From the 100th backward on, gradients stay local.",
          where=after_backwards(99), effect=own_value,
          caught_by=LATER, cause="not-reduced"),
    Fault("names-cut-short", "Gradients are stored by the first 64 letters of their names.",
          where=always, effect=names_cut_to_64_letters,
          caught_by=MANY, cause="other-parameters-gradient"),
    Fault("tensors-past-the-110th", "The optimizer steps only the first 110 tensors.",
          where=always, effect=first_110_tensors_stepped,
          caught_by=MANY, cause="not-updated"),
    Fault("state-numbers-sorted-as-text", "Optimizer entries are numbered and loaded in text order: 0, 1, 10, 11, 2.",
          where=always, effect=loading(momentum_by_numbers_sorted_as_text),
          caught_by=MANY, cause="momentum-of-other-parameter"),
    Fault("window-of-64-tensors", "Only the first 64 tensors accumulate gradients.",
          where=always, effect=window_of_64_tensors,
          caught_by="check_many_small_tensors_are_trained_exactly", cause="last-micro-batch-only"),
)
# fmt: on
