"""Replicas that clip gradients wrongly, or by the norm of a part."""

from __future__ import annotations

import math

import numpy as np

from ddpcheck.contract.allowed_names import MODEL_FEATURES
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..engine.circumstances import Circumstance, always
from ..engine.fault import Fault, table
from ..engine.replicas import clipped_by, clipping_each, in_place_of, nothing, squares, usual_factor
from ..engine.sharding import clipped_by_norm_of_shard
from ..registry import invented

CLIPPED = "check_clipping_uses_the_global_gradient_norm"


@clipping_each
def by_its_own_norm(gradient: Array, max_norm: float) -> Array:
    """Like clip_grad_norm_() called for each parameter."""
    return np.asarray(gradient * min(1.0, max_norm / (float(np.linalg.norm(gradient)) or 1.0)))


@fault(
    "dtypes-clipped-apart",
    "check_mixed_dtype_parameters_keep_their_precision",
    cause="clipped-by-groups",
    model_features=MODEL_FEATURES | {"mixed_dtypes"},
)
class DtypesClippedApart(PlainReplica):
    """The gradients of each dtype are clipped by their own norm."""

    def clip(self, max_norm: float) -> float:
        shown, norms = self._shown(), {}
        for dtype in {gradient.dtype for gradient in shown.values()}:
            norms[dtype] = math.sqrt(squares(each for each in shown.values() if each.dtype == dtype))
        for name, gradient in self.synced.items():
            factor = min(1.0, max_norm / (norms[gradient.dtype] or 1.0))
            self.synced[name] = np.asarray(gradient * factor, gradient.dtype)
        return math.hypot(*norms.values())


@clipping_each
def by_value(gradient: Array, max_norm: float) -> Array:
    return np.asarray(np.clip(gradient, -max_norm, max_norm))


def norm_of_own_shard(replica: PlainReplica) -> float:
    """Squares are not summed over ranks."""
    return math.sqrt(squares(list(replica._shown().values())[replica.rank :: replica.world]))


def sum_of_the_norms_of_shards(replica: PlainReplica) -> float:
    """Norms are summed over ranks, not squares."""
    shown = [gradient.reshape(-1) for gradient in replica._shown().values()]
    mine = np.array_split(np.concatenate(shown), replica.world)[replica.rank] if shown else np.zeros(0)
    return float(replica.comm.all_reduce(np.array([math.sqrt(squares([mine]))]))[0])


def limit_divided_by_norm(max_norm: float, norm: float) -> float:
    """NaN if all gradients are zero."""
    with np.errstate(invalid="ignore"):
        return float(np.float64(min(norm, max_norm)) / norm)


def with_a_large_epsilon(max_norm: float, norm: float) -> float:
    return min(1.0, max_norm / (norm + 0.01))


less_than_a_tenth_above = Circumstance("a norm less than a tenth above the limit", lambda use: use.argument >= 1 / 1.1)


def limit_divided_by_the_larger(max_norm: float, norm: float) -> float:
    """NaN if the limit is infinite."""
    with np.errstate(invalid="ignore"):
        return float(np.float64(max_norm) / max(norm, max_norm))


@fault(
    "clips-what-it-clipped-first",
    "check_clipping_ignores_unused_parameters",
    seen_in=("facebookresearch/fairscale (OSS._local_params)",),
    cause="norm-leaves-out",
)
class ClipsWhatItClippedFirst(PlainReplica):
    """The list of parameters to clip is made at the first clip; gradients that come later are left out."""

    listed: frozenset[str] = frozenset()

    def clip(self, max_norm: float) -> float:
        shown = self._shown()
        self.listed = self.listed or frozenset(shown)
        norm = math.sqrt(
            sum(float(np.sum(np.square(shown[name], dtype=np.float64))) for name in self.listed if name in shown)
        )
        self.scale(min(1.0, max_norm / norm) if norm else 1.0)
        return norm


def limit_unless_zero(max_norm: float, norm: float) -> float:
    return usual_factor(max_norm or math.inf, norm)


# fmt: off
table(
    globals(),
    Fault("clipped-tensor-by-tensor", "Each gradient is clipped by its own norm.",
          where=always, effect=by_its_own_norm,
          caught_by=CLIPPED, cause="clipped-by-own-norm"),
    Fault("clipped-by-value", "Gradients are clipped element by element to the limit.",
          where=always, effect=by_value,
          caught_by=CLIPPED, cause="clipped-by-element"),
    Fault("norm-of-the-own-shard", "The clipping norm covers only the rank's own shard of the parameters.",
          where=always, effect=clipped_by(norm_of_own_shard),
          caught_by=CLIPPED, cause="norm-of-shard", seen_in=("facebookresearch/fairscale#517",),
          in_torch=("clipped-by-the-norm-of-the-shard", clipped_by_norm_of_shard, invented)),
    Fault("norms-of-shards-added-up",
          "The clipping norm is the sum of the shards' norms, not the root of the sum of their squares.",
          where=always, effect=clipped_by(sum_of_the_norms_of_shards),
          caught_by=CLIPPED, cause="norm-too-large", world_size=3),
    Fault("norm-of-nothing", "Clipping divides by a norm of 0, which gives NaN.",
          where=always, effect=clipped_by(factor=limit_divided_by_norm),
          caught_by="check_random_training_programs_match_one_process", cause="divided-by-zero-norm"),
    Fault("clipped-with-a-large-guard", "Clipping adds 0.01 to the norm.",
          where=always, effect=clipped_by(factor=with_a_large_epsilon),
          caught_by=CLIPPED, cause="clip-guard-too-large"),
    Fault("clips-not-to-zero", "A limit of 0 switches clipping off.",
          where=always, effect=clipped_by(factor=limit_unless_zero),
          caught_by=CLIPPED, cause="clip-off-at-zero", world_size=1),
    Fault("clips-with-slack", "Norms up to a tenth above the limit are not clipped.",
          where=less_than_a_tenth_above, effect=in_place_of("scale")(nothing),
          caught_by=CLIPPED, cause="not-clipped"),
    Fault("clips-by-infinity", "Clipping with an infinite limit gives NaN.",
          where=always, effect=clipped_by(factor=limit_divided_by_the_larger),
          caught_by=CLIPPED, cause="infinite-clip-nan"),
)
# fmt: on
