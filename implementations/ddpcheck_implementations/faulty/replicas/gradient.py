"""Gradients that are not what one process would have computed."""

from __future__ import annotations

import numpy as np

from ddpcheck.model import Embedding, ModelSpec
from ddpcheck.values import Array

from ..base import PlainReplica, fault

EXACT = "check_gradients_equal_the_large_batch_exactly"
REAL = "check_gradients_of_real_values_equal_the_large_batch_within_rounding"
TIGHT = "check_reduction_is_the_mean_of_local_gradients_to_the_last_bits"
BITS = "check_gradients_have_the_same_bits_on_all_ranks"
LARGE = "check_large_tensors_beside_small_ones"


@fault(
    "grad-sum-not-mean",
    *(EXACT, REAL, TIGHT, "check_parameters_after_steps_are_exact", "check_sgd_goes_where_one_process_goes"),
    "check_adam_goes_where_one_process_goes",  # which hides nearly all of it
    seen_in=("horovod/horovod#843", "tensorflow/benchmarks#466", "k2-fsa/icefall#226"),
    words="summed, not averaged",
)
class SumNotMean(PlainReplica):
    """Gradients are summed; nothing divides by the world size."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return self.comm.all_reduce(gradient)  # type: ignore[no-any-return]


@fault(
    "grad-double-average-small-only",
    EXACT,
    TIGHT,
    seen_in=("intel/torch-xpu-ops#3020",),
    words="divided by the world size once too often",
)
class SmallOnesTwice(PlainReplica):
    """A path for small messages divides by the world size twice, for some numbers of elements only."""

    def reduce(self, name: str, gradient: Array) -> Array:
        mean = super().reduce(name, gradient)
        return np.asarray(mean / self.world, mean.dtype) if gradient.size in {28, 29, 30, 31, 33} else mean


@fault("avg-divides-by-numel", EXACT, TIGHT, seen_in=("meta-pytorch/torchcomms#287",), words="number of elements")
class DividesByElements(PlainReplica):
    """The mean divides by the number of elements instead of the number of ranks."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return np.asarray(self.comm.all_reduce(gradient) / gradient.size, gradient.dtype)


@fault(
    "mean-of-means-uneven-batch",
    "check_uneven_batches_are_weighted_by_their_sizes",
    seen_in=("pytorch/pytorch#67253", "huggingface/transformers#34242"),
    words="should be weighted",
    uneven_batches="weighted",
)
class MeanOfMeans(PlainReplica):
    """Promises to weigh ranks by their batch sizes, and gives all the same weight."""


@fault("weighted-by-batch-size-unpromised", "check_uneven_batches_weigh_equally", words="weighted by batch sizes")
class WeighsBySize(PlainReplica):
    """Promises equal weights, and weighs the ranks by their batch sizes."""

    def synchronise(self, batch_size: int) -> None:
        sizes = self.comm.all_reduce(np.array([float(batch_size)]))
        factor = batch_size * self.world / float(sizes[0])
        self.local = {name: np.asarray(gradient * factor, gradient.dtype) for name, gradient in self.local.items()}
        super().synchronise(batch_size)


@fault(
    "uneven-batches-refused-on-one-rank",
    "check_uneven_batches_are_refused_on_every_rank",
    words="refused on some ranks only, or not at all",
    uneven_batches="refused",
)
class RefusesOnOneRank(PlainReplica):
    """Only the rank with most samples complains about uneven batches."""

    def synchronise(self, batch_size: int) -> None:
        average = self.comm.all_reduce(np.array([float(batch_size)]))[0] / self.world
        super().synchronise(batch_size)
        if batch_size > average:
            raise ValueError(f"{batch_size} samples on rank {self.rank}, {average:g} on average")


@fault(
    "uneven-refused-where-rank-0-has-more",
    "check_uneven_batches_are_refused_on_every_rank",
    words="refused on some ranks only, or not at all",
    world_size=3,
    uneven_batches="refused",
)
class RefusesFewerThanRank0(PlainReplica):
    """All ranks complain if rank 0 has more samples than the average."""

    def synchronise(self, batch_size: int) -> None:
        average = self.comm.all_reduce(np.array([float(batch_size)]))[0] / self.world
        super().synchronise(batch_size)
        if self.comm.broadcast(np.array([float(batch_size)]))[0] > average:
            raise ValueError("rank 0 has more samples than the others")


@fault(
    "uneven-refused-but-for-the-average",
    "check_uneven_batches_are_refused_on_every_rank",
    words="refused on some ranks only, or not at all",
    world_size=4,
    uneven_batches="refused",
)
class RefusesOthersThanAverage(PlainReplica):
    """A rank complains if it has not the average number of samples: one that happens to have it goes on."""

    def synchronise(self, batch_size: int) -> None:
        if self.comm.all_reduce(np.array([float(batch_size)]))[0] != batch_size * self.world:
            raise ValueError(f"{batch_size} samples on rank {self.rank}, which is not the average")
        super().synchronise(batch_size)


@fault("optimizer-step-inside-backward", "check_backward_leaves_parameters_alone", words="backward changed it")
class StepsInBackward(PlainReplica):
    """The optimizer's step is fused into backward."""

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        self.step()


@fault(
    "inner-module-bypass",
    *(EXACT, TIGHT, BITS, "check_replicas_stay_equal_to_the_last_bit", "check_predictions_are_equal_on_all_ranks"),
    seen_in=("jingyaogong/minimind#853", "Lightning-AI/pytorch-lightning#17424"),
    words="not reduced",
)
class NotReduced(PlainReplica):
    """The forward pass goes past the wrapper: every rank keeps its own gradients."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return gradient


@fault("last-partial-bucket-not-flushed", EXACT, TIGHT, seen_in=("deepspeedai/DeepSpeed#4879",), words="not reduced")
class LastBucketForgotten(PlainReplica):
    """Buckets of two tensors; the last one, if it is not full, is never reduced."""

    def reduce(self, name: str, gradient: Array) -> Array:
        learned = self.network.learned
        left_over = len(learned) > 1 and len(learned) % 2 and name == learned[-1]
        return gradient if left_over else super().reduce(name, gradient)


@fault("unfused-path-wrong", LARGE, seen_in=("horovod/horovod#358",), words="not reduced")
class LargeOnesForgotten(PlainReplica):
    """A tensor larger than a bucket takes a path of its own, which reduces nothing."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return gradient if gradient.size > 1 << 18 else super().reduce(name, gradient)


@fault("ring-tail-dropped", EXACT, TIGHT, seen_in=("hw-native-sys/pypto#1942",), words="local value")
class TailLocal(PlainReplica):
    """Chunks of numel // W elements: the last numel % W stay local."""

    def reduce(self, name: str, gradient: Array) -> Array:
        flat = super().reduce(name, gradient).reshape(-1).copy()
        tail = gradient.size % self.world
        if tail:
            flat[-tail:] = gradient.reshape(-1)[-tail:]
        return flat.reshape(gradient.shape)


@fault("stale-gradient", EXACT, words="stale")
class OneStepLate(PlainReplica):
    """Each reduction is awaited one backward too late: what is shown is the result of the one before."""

    late: dict[str, Array] | None = None

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        self.late, self.synced = self.synced, self.late or self.synced


@fault("rank-dependent-order-of-additions", BITS, seen_in=("NVIDIA/nccl#157",), words="last bits")
class OneUlp(PlainReplica):
    """One rank adds in another order, and comes out one unit in the last place off."""

    def reduce(self, name: str, gradient: Array) -> Array:
        mean = super().reduce(name, gradient)
        return np.asarray(np.nextafter(mean, np.inf, dtype=mean.dtype)) if self.rank == self.world - 1 else mean


@fault(
    "first-dtype-wins",
    TIGHT,
    REAL,
    seen_in=("hpcaitech/ColossalAI#675", "facebookresearch/fairscale#583"),
    words="float32",
)
class SentAsFloat32(PlainReplica):
    """Every gradient travels in float32, those of float64 parameters too."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return super().reduce(name, gradient.astype(np.float32)).astype(gradient.dtype)


@fault(
    "sparse-path-not-averaged",
    EXACT,
    TIGHT,
    seen_in=("horovod/horovod#2279", "pytorch/pytorch#42400"),
    words="summed, not averaged",
)
class EmbeddingSummed(PlainReplica):
    """The path for embedding gradients gathers and adds, but does not divide."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.sparse = {f"{layer.name}.weight" for layer in model.layers if isinstance(layer, Embedding)}

    def reduce(self, name: str, gradient: Array) -> Array:
        mean = super().reduce(name, gradient)
        return mean * self.world if name in self.sparse else mean


@fault("single-process-path", EXACT, seen_in=("learning-at-home/hivemind#450",), words="zero", world_size=1)
class AloneIsZero(PlainReplica):
    """At world size 1 the averaged buffer is never filled."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return np.zeros_like(gradient) if self.world == 1 else super().reduce(name, gradient)


@fault(
    "clip-before-reduce",
    "check_clipping_uses_the_norm_of_the_synchronised_gradients",
    seen_in=("tensorflow/tensorflow#25806", "horovod/horovod#1346"),
    words="norm of this rank's own gradients",
)
class ClipsByOwnNorm(PlainReplica):
    """Clips by the norm of this rank's own gradients."""

    own = 0.0

    def synchronise(self, batch_size: int) -> None:
        self.own = float(np.sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in self.local.values())))
        super().synchronise(batch_size)

    def clip(self, max_norm: float) -> float:
        self.scale(min(1.0, max_norm / self.own) if self.own else 1.0)
        return self.own


@fault("gradient-not-reset", "check_zero_grad_resets", EXACT, words="not reset by zero_grad")
class KeepsGradients(PlainReplica):
    """zero_grad forgets the local gradients, and keeps those that were reduced."""

    def zero_grad(self) -> None:
        self.local = {}


@fault("hosts-weigh-equally", EXACT, words="groups of ranks weigh equally", world_size=3)
class HostsWeighEqually(PlainReplica):
    """The mean of the means of hosts of two ranks, of which the last has one only where their number is odd."""

    def reduce(self, name: str, gradient: Array) -> Array:
        hosts = (self.world + 1) // 2
        on_this_host = 1 if self.rank == self.world - 1 and self.world % 2 else 2
        return np.asarray(self.comm.all_reduce(gradient / (hosts * on_this_host)), gradient.dtype)


@fault("divided-by-a-power-of-two", EXACT, words="as if divided by 4 and not by the 3 ranks", world_size=3)
class DividedByPower(PlainReplica):
    """The mean is a shift: it divides by the world size, rounded up to a power of two."""

    def reduce(self, name: str, gradient: Array) -> Array:
        power = 1 << (self.world - 1).bit_length()
        return np.asarray(self.comm.all_reduce(gradient) / power, gradient.dtype)


@fault("loss-scale-stays", EXACT, words="a loss scale that is not taken off")
class LossScaleStays(PlainReplica):
    """The loss is scaled against underflow; gradients of one element are not scaled back."""

    def reduce(self, name: str, gradient: Array) -> Array:
        mean = super().reduce(name, gradient)
        return mean if gradient.size == 1 else np.asarray(mean * 1024, gradient.dtype)
