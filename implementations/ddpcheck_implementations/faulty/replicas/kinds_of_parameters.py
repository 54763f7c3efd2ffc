"""Replicas that are wrong for some dtypes or layouts, for empty parameters or for sparse gradients."""

from __future__ import annotations

from itertools import takewhile

import numpy as np

from ddpcheck.contract.allowed_names import ALL_MODEL_FEATURES as FEATURES
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..bucketed import Bucket, BucketReplica
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, another_dtype_than_first, instead, of_sparse_table, own_value, sending
from ..engine.replicas import Tensor, after, before, constructing, result

DTYPES = "check_mixed_dtype_parameters_keep_their_precision"
STRIDED = "check_column_major_parameters_train_like_row_major"
EMPTY = "check_zero_size_parameters"
SPARSE = "check_sparse_gradients_equal_the_large_batch"


@fault("buckets-have-one-dtype", DTYPES, cause="fewer-bits", model_features=FEATURES)
class BucketsHaveOneDtype(BucketReplica):
    """All buckets have the dtype of the model's first parameter."""

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
    """A bucket of frozen parameters alone is never ready and blocks all later buckets."""

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


@fault("large-column-major-reduced-in-a-copy", STRIDED, cause="not-reduced", model_features=FEATURES)
class LargeReducedInCopy(PlainReplica):
    """Gradients of a bucket's size and more are reduced where they are, in reshape(-1), which copies column-major ones."""

    bucket_bytes = 1 << 20

    def reduce(self, name: str, gradient: Array) -> Array:
        in_place = gradient.nbytes < self.bucket_bytes or self.network.parameters[name].flags.c_contiguous
        return super().reduce(name, gradient) if in_place else gradient


@after("start")
def parameters_in_the_models_dtype(replica: PlainReplica, model: ModelSpec) -> None:
    """Parameters of other dtypes are rounded."""
    for array in replica.network.parameters.values():
        array[...] = array.astype(model.dtype)


@result("state")
def parameters_in_the_dtype_of_the_first(replica: PlainReplica, state: dict[str, Array]) -> dict[str, Array]:
    common = next(iter(replica.network.parameters.values())).dtype
    return state | {name: array.astype(common) for name, array in replica.parameters().items()}


@constructing
def written_to_a_flat_copy(tensor: Tensor) -> None:
    """reshape(-1) copies an array that is not contiguous."""
    tensor.array.reshape(-1)[...] = tensor.of_rank_0(tensor.array).reshape(-1)


@constructing
def sent_in_the_order_of_memory(tensor: Tensor) -> None:
    """Send in memory order, and receive row by row."""
    tensor.array[...] = tensor.of_rank_0(tensor.array.ravel(order="K")).reshape(tensor.array.shape)


@result("gradients")
def none_for_empty_gradients(replica: PlainReplica, gradients: dict[str, Array | None]) -> dict[str, Array | None]:
    return {name: g if g is not None and g.size else None for name, g in gradients.items()}


@before("reduce")
def largest_element_looked_for(replica: PlainReplica, name: str, gradient: Array) -> None:
    """Raises if the gradient is empty."""
    gradient.max()


@instead
def row_of_the_last_rank(gradient: Gradient) -> Array:
    """Rows of all ranks are assigned, not added, so the last rank with a row wins."""
    found = np.zeros_like(gradient.array)
    for rows in gradient.gathered():
        touched = rows.any(axis=1)
        found[touched] = rows[touched]
    return np.asarray(found / gradient.world)


@sending
def first_16_rows(gradient: Gradient) -> Array:
    """Send only the first 16 nonzero rows."""
    sent = gradient.array.copy()
    sent[np.flatnonzero(sent.any(axis=1))[16:]] = 0
    return sent


@fault("norm-of-the-models-dtype", DTYPES, cause="norm-leaves-out", model_features=FEATURES)
class NormOfOneDtype(PlainReplica):
    """The clipping norm covers only parameters of the model's own dtype."""

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
    Fault("only-first-dtype-is-reduced", "Parameters of another dtype than the first stay local.",
          where=another_dtype_than_first, effect=own_value,
          caught_by=DTYPES, cause="not-reduced", model_features=FEATURES),
    Fault("float64-parameters-broadcast-as-float32",
          "Construction broadcasts all parameters in the model's dtype, which rounds float64 ones.",
          where=always, effect=parameters_in_the_models_dtype,
          caught_by=DTYPES, cause="fewer-bits", model_features=FEATURES),
    Fault("float64-parameters-saved-as-float32",
          "state() saves all parameters in the dtype of the first, which rounds float64 ones.",
          where=always, effect=parameters_in_the_dtype_of_the_first,
          caught_by=DTYPES, cause="fewer-bits", model_features=FEATURES),
    Fault("strided-parameters-flattened-to-copies",
          "Construction writes rank 0's values to a flat copy, so non-contiguous parameters keep their own.",
          where=always, effect=written_to_a_flat_copy,
          caught_by=STRIDED, cause="construction-leaves-other-value", model_features=FEATURES),
    Fault("broadcast-in-the-order-of-memory", "Construction broadcasts parameters in memory order, not row by row.",
          where=always, effect=sent_in_the_order_of_memory,
          caught_by=STRIDED, cause="permuted", model_features=FEATURES),
    Fault("empty-gradients-are-none", "Gradients without elements are None.",
          where=always, effect=none_for_empty_gradients,
          caught_by=EMPTY, cause="use-told-by-value", model_features=FEATURES),
    Fault("largest-of-nothing", "Reducing a gradient without elements raises an error.",
          where=always, effect=largest_element_looked_for,
          caught_by=EMPTY, cause="rank-raised", model_features=FEATURES),
    Fault("rows-of-several-ranks-count-once",
          "A sparse gradient row that several ranks have is overwritten instead of summed.",
          where=of_sparse_table, effect=row_of_the_last_rank,
          caught_by=SPARSE, cause="one-ranks-part-only", model_features=FEATURES),
    Fault("few-rows-of-a-sparse-gradient", "A sparse gradient sends only its first 16 nonzero rows.",
          where=of_sparse_table, effect=first_16_rows,
          caught_by=SPARSE, cause="parts-of-ranks-missing", model_features=FEATURES),
)
# fmt: on
