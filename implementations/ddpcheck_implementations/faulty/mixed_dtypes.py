"""Models with parameters of float32 and of float64, one of which is taken for the other or left out."""

from __future__ import annotations

from ddpcheck.model import ModelSpec
from ddpcheck.values import Array

from .base import PlainReplica, fault
from .bucketed import Bucket, BucketReplica

OWN = "check_parameters_of_several_dtypes_keep_their_own"


@fault("buckets-have-one-dtype", "classic", OWN, words="fewer bits than float64", mixed_dtypes=True)
class BucketsHaveOneDtype(BucketReplica):
    """All buckets have the dtype of the model's first parameter; what comes out of them has the right one again."""

    cap = 1 << 20

    def pack(self, bucket: Bucket) -> Array:
        return super().pack(bucket).astype(next(iter(self.network.parameters.values())).dtype)

    def unpack(self, bucket: Bucket, flat: Array) -> dict[str, Array]:
        found = super().unpack(bucket, flat)
        return {name: part.astype(self.network.parameters[name].dtype) for name, part in found.items()}


@fault("one-dtype-is-reduced", "classic", OWN, words="not reduced", mixed_dtypes=True)
class OneDtypeReduced(PlainReplica):
    """Gradients are reduced where they have the dtype of the model's first parameter."""

    def reduce(self, name: str, gradient: Array) -> Array:
        common = next(iter(self.network.parameters.values())).dtype
        return super().reduce(name, gradient) if gradient.dtype == common else gradient


@fault("wide-ones-are-broadcast-in-float32", "classic", OWN, words="float32", mixed_dtypes=True)
class BroadcastInFloat32(PlainReplica):
    """Parameters of float64 in a model of float32 start as rank 0's, rounded."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        for array in self.network.parameters.values():
            array[...] = array.astype(model.dtype)


@fault("wide-ones-are-saved-in-float32", "classic", OWN, words="float32", mixed_dtypes=True)
class SavedInFloat32(PlainReplica):
    """A checkpoint holds all floats in the dtype of most."""

    def state(self) -> dict[str, Array]:
        common = next(iter(self.network.parameters.values())).dtype
        narrow = {name: array.astype(common) for name, array in super().parameters().items()}
        return super().state() | narrow
