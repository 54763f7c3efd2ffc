"""Emulates a whole training run in float64 by given rules, to find its end under a specific mistake.

The emulation only explains a wrong run. The oracle judges whether a run is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ddpcheck.contract import ReplicaSync

from ...job import PerRank, Train
from ...oracle.bounded_values import by_rank
from ...oracle.network import Shards, evaluate
from ...oracle.training_runs import Run, batches
from ...seeded_values import Array
from ..gradients.auxiliary_terms import without_terms
from .batches import filled, shards, taken
from .emulation_rules import Rules, law_factor
from .optimizer import Arrays, RankOptimizers

LAW = Rules()


@dataclass
class Emulation:
    """Parameters at the end of each epoch, and before its last step; losses and counts of each rank, by epoch, window and
    micro-batch. Ranks first.
    """

    ends: list[Arrays] = field(default_factory=list)
    before_last_steps: list[Arrays] = field(default_factory=list)
    losses: list[list[list[tuple[Array, Array]]]] = field(default_factory=list)


def can_emulate(run: Run) -> bool:
    """Whether the run can be emulated: not with buffers, which only the oracle computes."""
    model = run.job.model
    assert model is not None
    return all(tensor.role != "buffer" for tensor in model.tensors())


@dataclass(frozen=True, slots=True)
class WindowPosition:
    """The position of a window of micro-batches in a run.

    step: counted over all epochs. number, windows: the window's number in its epoch, and the number of windows in the
    epoch.
    """

    epoch: int
    step: int
    number: int
    windows: int
    window: Sequence[PerRank]
    plan: Train


def emulate(run: Run, rules: Rules = LAW, where: Callable[[WindowPosition], bool] = lambda position: True) -> Emulation:
    """Emulate the whole run by these rules; with `where`, by these rules in some windows and by the law in the
    others.
    """
    return _Emulator(run, rules, where).run()


def loss_with(run: Run, epoch: int, parameters: Arrays) -> tuple[Array, Array]:
    """The ranks' mean losses over an epoch's samples with these parameters, and their numbers of samples."""
    emulator = _Emulator(run, LAW, lambda position: True)
    samples = tuple(tuple(map(int, rank)) for rank in run.indices[epoch])
    found = evaluate(emulator.model, parameters, emulator.fixed, emulator._shards(samples))
    return found.losses, np.array([len(rank) for rank in samples], np.float64)


class _Emulator:
    def __init__(self, run: Run, rules: Rules, where: Callable[[WindowPosition], bool]) -> None:
        self.where = where
        job, self.rules, self.plan, self.promised, self.indices = run.job, rules, run.plan, run.promised, run.indices
        if rules.batch_size is not None:
            self.plan = replace(self.plan, batch_size=rules.batch_size)
        if self.plan.max_norm is None:
            self.plan = replace(self.plan, max_norm=rules.norm)
        else:
            self.plan = replace(self.plan, max_norm=self.plan.max_norm * rules.clip_times)
        assert job.model is not None
        assert job.data is not None
        self.job, self.model = job, job.model
        self.data = job.data.arrays(job.model)
        self.learned = [tensor.name for tensor in job.model.tensors() if tensor.role == "learned"]
        built = self._built([job.initial(rank) for rank in range(job.world_size)])
        self.fixed = {name: array for name, array in built.items() if name not in self.learned}
        self.parameters = {name: built[name] for name in self.learned}
        self.optimizer = RankOptimizers(job.optimizer, job.world_size)
        self.pending: Arrays = {}
        self.applied: Arrays = {}  # gradients of the last step
        self.carried: Arrays = {}  # gradients at the start of an epoch
        self.earlier = self.begun = self.parameters, self.optimizer  # before the last step, and before the epoch
        self.counted = 0
        self.first: PerRank = ()  # the first batch of an epoch
        self.inputs_of: dict[PerRank, PerRank] = {}  # batches that have the inputs of others
        self.cut = [self._windows(ranks) for ranks in self.indices]
        self.steps = sum(map(len, self.cut)) * self.plan.epochs // len(self.cut)  # for a run that does not end early
        self.micro_batches = 0
        self.resumed = run.first
        self.step = np.zeros(job.world_size)
        self.set_factors = np.ones(job.world_size)
        self.is_last = False
        self.seen = np.zeros(job.world_size)

    def run(self) -> Emulation:
        made = Emulation()
        for epoch, windows in enumerate(self.cut):
            if epoch and epoch == self.rules.resumed:
                self._lose()
            if epoch == self.resumed:
                self.set_factors = np.ones(self.job.world_size)
            self.begun = {**self.parameters}, self.optimizer.copy()
            self.carried = self.applied if self.rules.kept else {}
            if self.rules.anew:
                self.optimizer = RankOptimizers(self.job.optimizer, self.job.world_size)
            made.losses.append([])
            self.first = windows[0][0]
            for number, window in enumerate(windows):
                rules, self.is_last = self.rules, number == len(windows) - 1
                if not self.where(WindowPosition(epoch, int(self.step[0]), number, len(windows), window, self.plan)):
                    self.rules = LAW
                made.losses[-1].append(self._window(window))
                self.rules = rules
            made.ends.append({name: array.copy() for name, array in self.parameters.items()})
            made.before_last_steps.append(self.earlier[0])
        return made

    def _built(self, initial: Sequence[Mapping[str, Array]]) -> Arrays:
        alike = self.promised.replica.replica_sync >= ReplicaSync.PARAMETERS
        source = [initial[0]] * len(initial) if alike else initial
        return {name: np.stack([rank[name] for rank in source]).astype(np.float64) for name in source[0]}

    def _windows(self, ranks: Sequence[Array]) -> list[list[PerRank]]:
        micro, size = batches(ranks, self.plan.batch_size), self.plan.micro_batches
        if self.rules.ahead:
            full = [each for each in micro if all(len(rank) == self.plan.batch_size for rank in each)]
            self.inputs_of |= dict(zip(full, full[self.rules.ahead :] + full[-1:] * self.rules.ahead, strict=False))
        begun = self.counted % size if self.rules.tail == "counted" else 0
        self.counted += len(micro)
        cuts = [0, *range(size - begun, len(micro), size), len(micro)]
        windows = [micro[start:end] for start, end in pairwise(cuts) if start < end]
        if self.rules.tail == "singly":
            return [[each] for each in micro]
        if self.rules.tail == "apart":
            return [*windows[:-1], *([each] for window in windows[-1:] for each in window)]
        return windows

    def _lose(self) -> None:
        ranks = range(self.job.world_size)
        one = self.rules.lost_on
        here = np.array([one == "all" or (rank > 0 if one == "others" else rank == one) for rank in ranks])
        if "step" in self.rules.lost:
            self.parameters, self.optimizer = self.earlier
        if "epoch" in self.rules.lost:
            self.parameters, self.optimizer = self.begun
        if "clip" in self.rules.lost:
            self.rules = replace(self.rules, clip="never")
        if "schedule" in self.rules.lost:
            self.step = np.where(here, 0.0, self.step)
        if "momentum" in self.rules.lost:
            self.optimizer.forget(here)
        if "parameters" in self.rules.lost:
            anew = self._built([self.job.initial_of_resumed(rank) for rank in ranks])
            self.parameters = {
                name: np.where(by_rank(here, now), anew[name], now) for name, now in self.parameters.items()
            }

    def _window(self, window: list[PerRank]) -> list[tuple[Array, Array]]:
        rules, full = self.rules, self.plan.micro_batches
        local, self.pending = self.pending, {}
        if rules.rows == "filled":
            window = [filled(micro, self.first, self.plan.batch_size) for micro in window]
        counts = [np.array([len(rank) for rank in micro], np.float64) for micro in window]
        here = np.sum(counts, axis=0)
        total = np.maximum(here, 1.0)
        losses = []
        for micro, count in zip(window, counts, strict=True):
            found = evaluate(self.model, self.parameters, self.fixed, self._shards(micro))
            losses.append((found.losses, count))
            weight = self._weight(count, total, len(window)) * (rules.weights != "last" or micro is window[-1])
            if rules.only is not None:
                weight = np.where(np.arange(len(count)) == rules.only, weight, count / total)
            for name, gradient in self._gradients(found.gradients, micro, weight, count).items():
                local[name] = local.get(name, 0.0) + gradient
            if rules.synced == "first" and micro is window[0]:
                local = self._reduced(local, here)
            if rules.clip == "each" and micro is not window[-1]:  # the last one is synchronised
                local = self._clipped(local)
        self.micro_batches += len(window)
        left_out = rules.short == "dropped" and not total.max() >= self.plan.batch_size
        if (len(window) == full or rules.tail not in ("dropped", "leaks")) and not left_out:
            self._finish(local, here, short=len(window) < full)
        elif rules.tail == "leaks":
            self.pending = local
        self.seen += sum(counts)
        return losses

    def _gradients(self, full: Arrays, samples: PerRank, weight: Array, count: Array) -> Arrays:
        """The gradients of one micro-batch, times its weight; the loss's auxiliary terms have their own weight."""
        weighted = {name: gradient * by_rank(weight, gradient) for name, gradient in full.items()}
        rule = self.rules.terms
        if rule == "law":
            return weighted
        often = {"each": 1.0 * (count > 0), "ranks": weight * len(count), "none": 0.0 * weight}[rule] - weight
        rest = evaluate(without_terms(self.model), self.parameters, self.fixed, self._shards(samples)).gradients
        return {name: weighted[name] + (full[name] - rest[name]) * by_rank(often, full[name]) for name in full}

    def _weight(self, count: Array, total: Array, micro_batches: int) -> Array:
        """The weight of a micro-batch of `count` samples, by rank, in a window with `total` of them."""
        size, full = self.plan.batch_size, self.plan.micro_batches
        weight = {
            "samples": count / total,
            "last": count / total,
            "equal": np.full_like(total, 1 / micro_batches),
            "sum": np.ones_like(total),
            "full": count / total * micro_batches / full,
        }[self.rules.weights]
        if self.rules.short == "full":
            weight = weight * total / (size * micro_batches)
        if self.rules.short == "single" and size > 1:
            return np.where(count == 1, 0.0, weight)
        return np.where(count < size, 0.0, weight) if self.rules.short == "dropped" else weight

    def _finish(self, local: Arrays, counts: Array, *, short: bool) -> None:
        """The step at the end of a window."""
        if self.rules.clip == "own":
            local = self._clipped(local)
        gradients = local if self.rules.synced == "first" else self._reduced(local, counts)
        gradients = {name: array + self.carried.get(name, 0.0) for name, array in gradients.items()}
        if self.rules.clip in ("reduced", "each", "always") or (self.rules.clip == "not short" and not short):
            gradients = self._clipped(gradients)
        self.carried, self.applied = {}, gradients
        self._update(gradients)
        rules = self.rules
        if rules.again == "every" or (
            self.is_last and (rules.again == "last" or (rules.again == "full" and not short))
        ):
            step, zeros = self.step, {name: np.zeros_like(array) for name, array in gradients.items()}
            self._update(gradients if rules.again_with == "the same" else zeros, again=True)
            self.step = self.step if rules.again_counts else step

    def _update(self, gradients: Arrays, *, again: bool = False) -> None:
        self.earlier = {**self.parameters}, self.optimizer.copy()
        if self.rules.skipped:
            self.step = self.step + 1
            return
        factor = self.rules.factor or partial(law_factor, self.plan)
        spec = replace(self.job.optimizer, **dict[str, Any](self.rules.optimizer))
        at, steps = self.step, np.full(len(self.step), self.steps)
        if self.rules.by_samples:
            share = self.plan.epochs / len(self.indices)
            used = [max(1.0, share * sum(map(len, rank))) for rank in zip(*self.indices, strict=True)]
            at, steps = self.seen, np.array(used)
        if self.rules.by_micro_batches is not None:
            at = np.full(len(at), min(self.micro_batches + self.rules.by_micro_batches, self.steps))
        apart, in_momentum = self.rules.decay != "gradient", self.rules.rate_in_momentum
        if again and not self.rules.again_counts:
            at = at - 1
        factors = np.array([factor(i, n) for i, n in zip(at, steps, strict=True)])
        if self.rules.behind:
            factors, self.set_factors = self.set_factors, factors
        rates = self.job.optimizer.lr * factors
        for name, gradient in gradients.items():
            decay, rate = spec.weight_decay * self.parameters[name], by_rank(rates, gradient)
            through = gradient if apart else gradient + decay
            taken = self.optimizer.step(name, through, rate, spec, rate_in_momentum=in_momentum)
            rate_apart = rate if self.rules.decay == "apart" else np.full_like(rate, self.job.optimizer.lr)
            self.parameters[name] = self.parameters[name] - taken - apart * rate_apart * decay
        if self.rules.stays:
            self.optimizer.without_last_momentum(self.earlier[1])
        self.step = self.step + 1

    def _reduced(self, local: Arrays, counts: Array) -> Arrays:
        """The mean over ranks, or the promised convention instead."""
        weights, rule = np.ones_like(counts), self.rules.ranks
        if rule == "by size" or (rule == "promised" and self.promised.replica.uneven_batches == "weighted"):
            weights = counts * len(counts) / counts.sum()
        if self.rules.wire:
            local = {name: array.astype(self.rules.wire).astype(np.float64) for name, array in local.items()}
        if self.rules.parts:
            weights = weights * [self.rules.parts.get(rank, 1.0) for rank in range(len(counts))]
        reduce = np.sum if self.promised.replica.gradient == "sum" else np.mean
        return {
            name: np.broadcast_to(self.rules.times * reduce(array * by_rank(weights, array), axis=0), array.shape)
            for name, array in local.items()
        }

    def _clipped(self, gradients: Arrays) -> Arrays:
        """Gradients clipped by each rank's own norm."""
        if self.plan.max_norm is None:
            return gradients
        norm = np.sqrt(sum((array.reshape(len(array), -1) ** 2).sum(axis=1) for array in gradients.values()))
        factor = self.plan.max_norm / np.maximum(norm, 1e-300)
        factor = factor if self.rules.clip == "always" else np.minimum(1.0, factor)
        return {name: array * by_rank(factor, array) for name, array in gradients.items()}

    def _shards(self, samples: PerRank) -> Shards:
        return shards(self.data, taken(samples, self.rules), self.inputs_of.get(samples), self.rules)
