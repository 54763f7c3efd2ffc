"""Gradients that are clipped, but not by the norm of all together, or whose norm is that of a part."""

from __future__ import annotations

import math

import numpy as np

from ddpcheck.values import Array

from ..base import PlainReplica, fault

CLIPPED = "check_clipping_uses_the_global_gradient_norm"


class Clipping(PlainReplica):
    def clip(self, max_norm: float) -> float:
        norm = math.sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in self._shown().values()))
        for gradients in (self.synced, self.local):
            gradients.update({name: np.asarray(self.clipped(g, max_norm), g.dtype) for name, g in gradients.items()})
        return norm

    def clipped(self, gradient: Array, max_norm: float) -> Array:
        raise NotImplementedError


@fault("clipped-tensor-by-tensor", CLIPPED, cause="clipped-by-own-norm")
class TensorByTensor(Clipping):
    """Each gradient is clipped by its own norm, as by calling clip_grad_norm_ in a loop."""

    def clipped(self, gradient: Array, max_norm: float) -> Array:
        return np.asarray(gradient * min(1.0, max_norm / (float(np.linalg.norm(gradient)) or 1.0)))


@fault("clipped-by-value", CLIPPED, cause="clipped-by-element")
class ByValue(Clipping):
    """Elements are cut off at the limit that was meant for the norm."""

    def clipped(self, gradient: Array, max_norm: float) -> Array:
        return np.asarray(np.clip(gradient, -max_norm, max_norm))


@fault("norm-of-the-own-shard", CLIPPED, seen_in=("facebookresearch/fairscale#517",), cause="norm-of-shard")
class NormOfShard(PlainReplica):
    """Each rank measures the gradients that its part of the optimizer is for, and nobody adds the squares up."""

    def clip(self, max_norm: float) -> float:
        mine = list(self._shown().values())[self.rank :: self.world]
        norm = math.sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in mine))
        self.scale(min(1.0, max_norm / norm) if norm else 1.0)
        return norm


@fault("norms-of-shards-added-up", CLIPPED, cause="norm-too-large", world_size=3)
class NormsAddedUp(PlainReplica):
    """Each rank measures its part of all gradients laid end to end; the norms, and not their squares, are added up."""

    def clip(self, max_norm: float) -> float:
        shown = [gradient.reshape(-1) for gradient in self._shown().values()]
        mine = np.array_split(np.concatenate(shown), self.world)[self.rank] if shown else np.zeros(0)
        own = math.sqrt(float(np.sum(np.square(mine, dtype=np.float64))))
        norm = float(self.comm.all_reduce(np.array([own]))[0])
        self.scale(min(1.0, max_norm / norm) if norm else 1.0)
        return norm


@fault("norm-of-nothing", "check_random_training_programs_match_one_process", cause="divided-by-zero-norm")
class NormOfNothing(PlainReplica):
    """Gradients are divided by their norm first, which is zero where all of them are."""

    def clip(self, max_norm: float) -> float:
        norm = np.sqrt(sum(np.sum(np.square(g, dtype=np.float64)) for g in self._shown().values()))
        with np.errstate(invalid="ignore"):
            self.scale(float(np.float64(min(norm, max_norm)) / norm))
        return float(norm)


@fault("clipped-with-a-large-guard", CLIPPED, cause="clip-guard-too-large")
class LargeGuard(PlainReplica):
    """What keeps a norm of zero from dividing by zero makes every other gradient too small as well."""

    def clip(self, max_norm: float) -> float:
        norm = math.sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in self._shown().values()))
        self.scale(min(1.0, max_norm / (norm + 0.01)))
        return norm


@fault("clips-with-slack", CLIPPED, cause="not-clipped")
class ClipsWithSlack(PlainReplica):
    """What is less than a tenth above the limit is left as it is."""

    def scale(self, factor: float) -> None:
        super().scale(factor if factor < 1 / 1.1 else 1.0)


@fault("clips-by-infinity", CLIPPED, cause="infinite-clip-nan")
class ClipsByInfinity(PlainReplica):
    """The limit is divided by the larger of limit and norm, which is infinity by infinity for who wants to know the norm."""

    def clip(self, max_norm: float) -> float:
        norm = np.sqrt(sum(np.sum(np.square(g, dtype=np.float64)) for g in self._shown().values()))
        with np.errstate(invalid="ignore"):
            self.scale(float(np.float64(max_norm) / max(norm, max_norm)))
        return float(norm)


@fault(
    "clips-what-it-clipped-first",
    "check_clipping_ignores_unused_parameters",
    seen_in=("facebookresearch/fairscale (OSS._local_params)",),
    cause="norm-leaves-out",
)
class ClipsWhatItClippedFirst(PlainReplica):
    """The list of what has a gradient is made at the first clip, and kept: what is used later counts in no norm."""

    listed: frozenset[str] = frozenset()

    def clip(self, max_norm: float) -> float:
        shown = self._shown()
        self.listed = self.listed or frozenset(shown)
        norm = math.sqrt(
            sum(float(np.sum(np.square(shown[name], dtype=np.float64))) for name in self.listed if name in shown)
        )
        self.scale(min(1.0, max_norm / norm) if norm else 1.0)
        return norm
