"""Replicas from bug reports: wrong or misreported norms, reused buffers, wrong groups or tensors, lost optimizer state, and
skipped steps or backwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..engine.replicas import squares
from .clipping import CLIPPED
from .nonfinite import SKIPPED, LossScaling

EXACT = "check_gradients_equal_the_large_batch_exactly"


@fault("reduced-in-a-group-of-one", EXACT, seen_in=("ByteDance-Seed/VeOmni#1115",), cause="not-reduced")
class GroupOfOne(PlainReplica):
    """Gradients are reduced in a group of one rank, which changes nothing."""

    between_processes = True  # ranks that are threads have no groups

    def reduce(self, name: str, gradient: Array) -> Array:
        return np.asarray(self.comm.all_reduce(gradient, group=[self.rank]), gradient.dtype)


@fault(
    "hook-averages-the-parameter",
    "check_backward_does_not_change_parameters",
    EXACT,
    seen_in=("huggingface/picotron#39",),
    cause="parameter-averaged-in-backward",
)
class AveragesTheParameter(PlainReplica):
    """The gradient hook gets the parameter, not its gradient, and averages it. The gradient stays local."""

    def reduce(self, name: str, gradient: Array) -> Array:
        parameter = self.network.parameters[name]
        parameter[...] = super().reduce(name, parameter)
        return gradient


@fault("each-group-from-the-original", EXACT, seen_in=("flagos-ai/FlagScale#907",), cause="one-ranks-part-only")
class EachGroupFromTheOriginal(PlainReplica):
    """Gradients are reduced on each host, then among the hosts' first ranks, which begin with their own gradient again."""

    per_host = 2
    between_processes = True  # one rank makes more calls than the other

    def reduce(self, name: str, gradient: Array) -> Array:
        first = self.rank // self.per_host * self.per_host
        host = list(range(first, min(first + self.per_host, self.world)))
        total = gradient
        for group in (host, list(range(0, self.world, self.per_host))):
            if self.rank in group:
                total = self.comm.all_reduce(gradient, group=group)
        return np.asarray(self.comm.broadcast(total, first, group=host) / self.world, gradient.dtype)


@fault(
    "norm-of-synchronised-gradients-reduced",
    CLIPPED,
    seen_in=("modelscope/twinkle#290",),
    cause="norm-summed-over-ranks",
)
class NormReducedAgain(PlainReplica):
    """The clipping norm sums squares over ranks, although every rank has all gradients."""

    def clip(self, max_norm: float) -> float:
        own = sum(float(np.sum(np.square(g, dtype=np.float64))) for g in self._shown().values())
        norm = math.sqrt(float(self.comm.all_reduce(np.array([own]))[0]))
        self.scale(min(1.0, max_norm / norm) if norm else 1.0)
        return norm


@fault(
    "rank-0-looks-for-nan",
    SKIPPED,
    seen_in=("ecmwf/WeatherGenerator#2724",),
    cause="nonfinite-step-taken",
    skips_nonfinite=True,
)
class RankZeroDecides(LossScaling):
    """Rank 0's loss alone decides whether all ranks skip a step."""

    fits = True

    def backward(self, batch: Batch) -> float:
        loss = super().backward(batch)
        self.fits = bool(self.comm.broadcast(np.array([float(np.isfinite(loss))]))[0])
        return loss

    def finite(self) -> bool:
        return self.fits


@fault(
    "rank-without-samples-goes-on",
    "check_uneven_batches_count_equally_per_rank",
    seen_in=("NVIDIA-NeMo/Automodel#2468",),
    cause="idle-rank-skips-collectives",
)
class GoesOnAlone(PlainReplica):
    """A rank with an empty batch skips the reduction."""

    def backward(self, batch: Batch) -> float:
        return super().backward(batch) if len(batch.inputs) else 0.0


@fault(
    "parameters-gathered-into-gradient-buffer",
    "check_uneven_batches_count_equally_per_rank",
    seen_in=("NVIDIA/Megatron-LM#4609",),
    cause="parameter-added-to-gradient",
)
class GatheredIntoGradients(PlainReplica):
    """The first forward after a step receives the updated parameters in the gradients' buffer and does not clear it."""

    stepped = False

    def step(self) -> None:
        super().step()
        self.stepped = True

    def before_forward(self) -> None:
        super().before_forward()
        if self.stepped:
            self.stepped = False
            for number, name in enumerate(self.network.learned):
                parameter = self.network.parameters[name]
                self.local[name] = np.asarray(self.comm.broadcast(parameter, number % self.world))
                parameter[...] = self.local[name]


@fault(
    "moments-of-a-new-optimizer-only",
    "check_resumed_training_matches_one_process",
    seen_in=("areal-project/AReaL#1468",),
    cause="optimizer-state-lost",
)
class MomentsOfNewOptimizer(PlainReplica):
    """Loading fills only the optimizer state that the new replica has: none, before its first step."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        known = {f"optimizer.{name}" for name in self.optimizer.state()}
        lost = {name for name in state if name.startswith("optimizer.")} - known
        super().load_state({name: value for name, value in state.items() if name not in lost})


@fault(
    "reported-norm-of-own-shard",
    CLIPPED,
    seen_in=("radixark/miles_diffusion#35",),
    cause="norm-of-shard",
)
class ReportedNormOfShard(PlainReplica):
    """Gradients are clipped by the global norm, but clip() returns the norm of the rank's own shard."""

    def clip(self, max_norm: float) -> float:
        flat = np.concatenate([gradient.reshape(-1) for gradient in self._shown().values()] or [np.zeros(0)])
        own = math.sqrt(squares([np.array_split(flat, self.world)[self.rank]]))
        super().clip(max_norm)
        return own
