"""Parameters of another dtype or layout, without elements, or with sparse gradients, which are taken for plain ones."""

from __future__ import annotations

from itertools import takewhile

import numpy as np

from ddpcheck.contract.names import ALL_MODEL_FEATURES as FEATURES
from ddpcheck.models.spec import Embedding, ModelSpec
from ddpcheck.values import Array

from ..base import PlainReplica, fault
from ..bucketed import Bucket, BucketReplica
from ..engine.fault import Fault, table
from ..engine.gradients import another_dtype_than_first, own_value

DTYPES = "check_mixed_dtype_parameters_keep_their_precision"
STRIDED = "check_column_major_parameters_train_like_row_major"
EMPTY = "check_zero_size_parameters"
SPARSE = "check_sparse_gradients_equal_the_large_batch"


@fault("buckets-have-one-dtype", DTYPES, cause="fewer-bits", model_features=FEATURES)
class BucketsHaveOneDtype(BucketReplica):
    """All buckets have the dtype of the model's first parameter; what comes out of them has the right one again."""

    cap = 1 << 20

    def pack(self, bucket: Bucket) -> Array:
        return super().pack(bucket).astype(next(iter(self.network.parameters.values())).dtype)

    def unpack(self, bucket: Bucket, flat: Array) -> dict[str, Array]:
        found = super().unpack(bucket, flat)
        return {name: part.astype(self.network.parameters[name].dtype) for name, part in found.items()}


@fault(
    "bucket-of-frozen-ones-waits",
    DTYPES,
    seen_in=("pytorch/pytorch#14675",),
    cause="not-reduced",
    model_features=FEATURES,
)
class FrozenOnesWait(PlainReplica):
    """A bucket holds neighbours of one dtype, frozen ones too. One of frozen ones alone is never ready, nor is any after it."""

    def synchronise(self, batch_size: int) -> None:
        layout: list[list[str]] = []
        for name, array in reversed(self.network.parameters.items()):
            if not layout or self.network.parameters[layout[-1][0]].dtype != array.dtype:
                layout.append([])
            layout[-1].append(name)
        ready = takewhile(lambda bucket: any(name in self.network.learned for name in bucket), layout)
        self.sent = {name for bucket in ready for name in bucket}
        super().synchronise(batch_size)

    def reduce(self, name: str, gradient: Array) -> Array:
        return super().reduce(name, gradient) if name in self.sent else gradient


@fault("wide-ones-are-broadcast-in-float32", DTYPES, cause="fewer-bits", model_features=FEATURES)
class BroadcastInFloat32(PlainReplica):
    """Parameters of float64 in a model of float32 start as rank 0's, rounded."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        for array in self.network.parameters.values():
            array[...] = array.astype(model.dtype)


@fault("wide-ones-are-saved-in-float32", DTYPES, cause="fewer-bits", model_features=FEATURES)
class SavedInFloat32(PlainReplica):
    """A checkpoint holds all floats in the dtype of most."""

    def state(self) -> dict[str, Array]:
        common = next(iter(self.network.parameters.values())).dtype
        narrow = {name: array.astype(common) for name, array in super().parameters().items()}
        return super().state() | narrow


@fault(
    "flattened-strided-ones-are-copies",
    STRIDED,
    cause="construction-leaves-other-value",
    model_features=FEATURES,
)
class WritesToACopy(PlainReplica):
    """Rank 0's parameters are written to the flattened array, which is a copy where the parameter is not contiguous."""

    def start(self, model: ModelSpec) -> None:
        for array in self.network.tensors.values():
            array.reshape(-1)[...] = self.comm.broadcast(array).reshape(-1)


@fault(
    "broadcast-in-the-order-of-memory",
    STRIDED,
    cause="permuted",
    model_features=FEATURES,
)
class BroadcastAsItLies(PlainReplica):
    """Elements go out in the order in which they lie in memory, and are taken for rows."""

    def start(self, model: ModelSpec) -> None:
        for array in self.network.tensors.values():
            array[...] = self.comm.broadcast(array.ravel(order="K")).reshape(array.shape)


@fault("empty-gradients-are-none", EMPTY, cause="use-told-by-value", model_features=FEATURES)
class EmptyIsNone(PlainReplica):
    """A gradient is there if any of its elements is."""

    def gradients(self) -> dict[str, Array | None]:
        return {name: g if g is not None and g.size else None for name, g in super().gradients().items()}


@fault("largest-of-nothing", EMPTY, cause="rank-raised", model_features=FEATURES)
class LargestOfNothing(PlainReplica):
    """Looks for the largest element of each gradient, which one without elements does not have."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return super().reduce(name, gradient) if gradient.max() < np.inf else gradient


@fault(
    "rows-of-several-ranks-count-once",
    SPARSE,
    cause="one-ranks-part-only",
    model_features=FEATURES,
)
class RowsCountOnce(PlainReplica):
    """Sparse gradients are gathered as rows and put where they belong; the last rank that has a row wins."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        tables = (layer for layer in model.layers if isinstance(layer, Embedding) and layer.sparse)
        self.sparse = {f"{layer.name}.weight" for layer in tables}

    def reduce(self, name: str, gradient: Array) -> Array:
        if name not in self.sparse:
            return super().reduce(name, gradient)
        result = np.zeros_like(gradient)
        for rows in self.comm.all_gather(gradient):
            touched = rows.any(axis=1)
            result[touched] = rows[touched]
        return np.asarray(result / self.world, gradient.dtype)


@fault("few-rows-of-a-sparse-gradient", SPARSE, cause="parts-of-ranks-missing", model_features=FEATURES)
class FewRows(PlainReplica):
    """Of a sparse gradient sixteen rows are sent; what comes after them is not."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        tables = (layer for layer in model.layers if isinstance(layer, Embedding) and layer.sparse)
        self.sparse = {f"{layer.name}.weight" for layer in tables}

    def reduce(self, name: str, gradient: Array) -> Array:
        if name in self.sparse:
            gradient = gradient.copy()
            gradient[np.flatnonzero(gradient.any(axis=1))[16:]] = 0
        return super().reduce(name, gradient)


@fault("norm-of-the-models-dtype", DTYPES, cause="norm-leaves-out", model_features=FEATURES)
class NormOfOneDtype(PlainReplica):
    """The norm is taken of the bucket of the model's own dtype, and all buckets are scaled by it."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.dtype = np.dtype(model.dtype)

    def clip(self, max_norm: float) -> float:
        own = [gradient for gradient in self._shown().values() if gradient.dtype == self.dtype]
        norm = float(np.sqrt(sum(float(np.sum(np.square(gradient, dtype=np.float64))) for gradient in own)))
        self.scale(min(1.0, max_norm / norm) if norm else 1.0)
        return norm


# fmt: off
table(
    globals(),
    Fault("one-dtype-is-reduced", where=another_dtype_than_first, effect=own_value,
          caught_by=DTYPES, cause="not-reduced", model_features=FEATURES),
)
# fmt: on
