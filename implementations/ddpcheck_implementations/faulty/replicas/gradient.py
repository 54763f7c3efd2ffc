"""Gradients that differ from those of one process."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddpcheck.models.spec import Embedding
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..engine.circumstances import Circumstance, always, elements, larger, on_last_rank
from ..engine.fault import Fault, table
from ..engine.gradients import (
    Gradient,
    divided_by,
    divided_twice,
    instead,
    last_parameter,
    next_number,
    odd_number_of_parameters,
    of_layer,
    own_value,
    scaled,
    summed,
    tail_kept_local,
    through,
    world_of,
    zeros,
)
from ..engine.modules import hook, inner_module
from ..engine.replicas import Made, after, around, in_place_of, local_gradients_dropped, weighted_by_batch_size
from ..registry import invented

EXACT = "check_gradients_equal_the_large_batch_exactly"
REAL = "check_gradients_equal_the_large_batch_within_rounding"
TIGHT = "check_gradients_are_the_mean_of_local_gradients"
BITS = "check_gradients_are_bitwise_equal_on_all_ranks"
LARGE = "check_large_and_one_element_gradients_are_exact"

some_small_sizes = Circumstance("28 to 33 elements", lambda gradient: gradient.array.size in {28, 29, 30, 31, 33})
several_parameters = Circumstance("several parameters", lambda gradient: len(gradient.replica.network.learned) > 1)


@instead
def mean_of_the_means_of_hosts(gradient: Gradient) -> Array:
    """Hosts have two ranks; the last host has one if the world size is odd."""
    hosts = (gradient.world + 1) // 2
    on_this_host = 1 if gradient.rank == gradient.world - 1 and gradient.world % 2 else 2
    return np.asarray(gradient.replica.comm.all_reduce(gradient.array / (hosts * on_this_host)))


@around("synchronise")
def refused_where_it_is_more_than_average(
    replica: PlainReplica, synchronise: Callable[[int], None], batch_size: int
) -> None:
    average = replica.comm.all_reduce(np.array([float(batch_size)]))[0] / replica.world
    synchronise(batch_size)
    if batch_size > average:
        raise ValueError(f"{batch_size} samples on rank {replica.rank}, {average:g} on average")


@around("synchronise")
def refused_if_rank_0_has_more_than_average(
    replica: PlainReplica, synchronise: Callable[[int], None], batch_size: int
) -> None:
    average = replica.comm.all_reduce(np.array([float(batch_size)]))[0] / replica.world
    synchronise(batch_size)
    if replica.comm.broadcast(np.array([float(batch_size)]))[0] > average:
        raise ValueError("rank 0 has more samples than the others")


@around("synchronise")
def refused_where_it_is_not_the_average(
    replica: PlainReplica, synchronise: Callable[[int], None], batch_size: int
) -> None:
    """A rank with exactly the average does not raise."""
    if replica.comm.all_reduce(np.array([float(batch_size)]))[0] != batch_size * replica.world:
        raise ValueError(f"{batch_size} samples on rank {replica.rank}, which is not the average")
    synchronise(batch_size)


@after("synchronise")
def stepped(replica: PlainReplica, batch_size: int) -> None:
    """Like an optimizer that is fused into backward."""
    replica.step()


@fault("stale-gradient", EXACT, cause="stale-gradient")
class OneStepLate(PlainReplica):
    """gradients() shows the reduction of the previous backward."""

    late: dict[str, Array] | None = None

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        self.late, self.synced = self.synced, self.late or self.synced


@fault(
    "clip-before-reduce",
    "check_clipping_uses_the_global_gradient_norm",
    seen_in=("tensorflow/tensorflow#25806", "horovod/horovod#1346"),
    cause="norm-of-own",
)
class ClipsByOwnNorm(PlainReplica):
    """Clipping uses the norm of the rank's own gradients."""

    own = 0.0

    def synchronise(self, batch_size: int) -> None:
        self.own = float(np.sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in self.local.values())))
        super().synchronise(batch_size)

    def clip(self, max_norm: float) -> float:
        self.scale(min(1.0, max_norm / self.own) if self.own else 1.0)
        return self.own


# fmt: off
table(
    globals(),
    Fault("grad-sum-not-mean", "Gradients are summed over ranks, not averaged.",
          where=always, effect=summed,
          caught_by=(EXACT, REAL, TIGHT, "check_parameters_after_sgd_steps_are_exact", "check_sgd_matches_one_process",
                     "check_adam_matches_one_process"),  # Adam hides most of the factor
          cause="summed-not-averaged", seen_in=("horovod/horovod#843", "tensorflow/benchmarks#466", "k2-fsa/icefall#226"),
          in_torch=("comm-hook-sums", hook("wrappers:summed"), invented)),
    Fault("grad-double-average-small-only", "Gradients of 28 to 33 elements are divided by the world size twice.",
          where=some_small_sizes, effect=divided_twice,
          caught_by=(EXACT, TIGHT), cause="divided-too-often", seen_in=("intel/torch-xpu-ops#3020",)),
    Fault("avg-divides-by-numel", "Gradients are divided by their number of elements instead of the world size.",
          where=always, effect=divided_by(lambda gradient: gradient.array.size),
          caught_by=(EXACT, TIGHT), cause="divided-by-elements", seen_in=("meta-pytorch/torchcomms#287",)),
    Fault("inner-module-bypass", "Gradients are not reduced.",
          where=always, effect=own_value,
          caught_by=(EXACT, TIGHT, BITS, "check_replicas_stay_in_sync_bitwise", "check_predictions_are_equal_on_all_ranks"),
          cause="not-reduced", seen_in=("jingyaogong/minimind#853", "Lightning-AI/pytorch-lightning#17424"),
          in_torch=("forward-of-the-inner-module", inner_module, ("jingyaogong/minimind#853",))),
    Fault("last-partial-bucket-not-flushed", "If the number of parameters is odd, the last one is not reduced.",
          where=several_parameters & odd_number_of_parameters & last_parameter,
          effect=own_value, caught_by=(EXACT, TIGHT), cause="not-reduced", seen_in=("deepspeedai/DeepSpeed#4879",)),
    Fault("unfused-path-wrong", "Gradients of more than 262,144 elements are not reduced.",
          where=larger(1 << 18), effect=own_value,
          caught_by=LARGE, cause="not-reduced", seen_in=("horovod/horovod#358",)),
    Fault("ring-tail-dropped", "The last n % W elements of a gradient stay local.",
          where=always, effect=tail_kept_local(lambda gradient: gradient.array.size % gradient.world),
          caught_by=(EXACT, TIGHT), cause="part-not-reduced", seen_in=("hw-native-sys/pypto#1942",)),
    Fault("rank-dependent-order-of-additions", "The last rank's gradients differ from the others' in the last bit.",
          where=on_last_rank, effect=next_number,
          caught_by=BITS, cause="last-bits-differ", seen_in=("NVIDIA/nccl#157",)),
    Fault("first-dtype-wins", "Gradients of every dtype are sent as float32.",
          where=always, effect=through("float32"),
          caught_by=(TIGHT, REAL), cause="fewer-bits", seen_in=("hpcaitech/ColossalAI#675", "facebookresearch/fairscale#583")),
    Fault("sparse-path-not-averaged", "Gradients of embeddings are summed, not averaged.",
          where=of_layer(Embedding), effect=summed,
          caught_by=(EXACT, TIGHT), cause="summed-not-averaged", seen_in=("horovod/horovod#2279", "pytorch/pytorch#42400")),
    Fault("single-process-path", "At world size 1, all gradients are 0.",
          where=world_of(1), effect=zeros,
          caught_by=EXACT, cause="never-written", world_size=1, seen_in=("learning-at-home/hivemind#450",)),
    Fault("hosts-weigh-equally", "The means of hosts are averaged with equal weights, whatever their numbers of ranks.",
          where=always, effect=mean_of_the_means_of_hosts,
          caught_by=EXACT, cause="groups-weigh-equally", world_size=3),
    Fault("divided-by-a-power-of-two", "Gradients are divided by the next power of two instead of the world size.",
          where=always, effect=divided_by(lambda gradient: 1 << (gradient.world - 1).bit_length()),
          caught_by=EXACT, cause="wrong-divisor", world_size=3),
    Fault("loss-scale-stays", "Gradients are not divided by the loss scale of 1,024, except those of one element.",
          where=~elements(1), effect=scaled(1024),
          caught_by=EXACT, cause="loss-scale-kept"),
    Fault("mean-of-means-uneven-batch", "Ranks weigh equally, although weights by batch size are promised.",
          where=always, effect=Made(PlainReplica),
          caught_by="check_uneven_batches_are_weighted_by_size", cause="equal-weights-not-by-size",
          seen_in=("pytorch/pytorch#67253", "huggingface/transformers#34242"), uneven_batches="weighted"),
    Fault("weighted-by-batch-size-unpromised", "Ranks are weighted by batch size, although equal weights are promised.",
          where=always, effect=weighted_by_batch_size,
          caught_by="check_uneven_batches_count_equally_per_rank", cause="weighted-by-size"),
    Fault("uneven-batches-refused-on-one-rank",
          "Of uneven batches, only ranks with more samples than average raise an error.",
          where=always, effect=refused_where_it_is_more_than_average,
          caught_by="check_uneven_batches_raise_on_every_rank", cause="uneven-batches-not-refused",
          uneven_batches="refused"),
    Fault("uneven-refused-where-rank-0-has-more",
          "Uneven batches raise an error only if rank 0 has more samples than average.",
          where=always, effect=refused_if_rank_0_has_more_than_average,
          caught_by="check_uneven_batches_raise_on_every_rank", cause="uneven-batches-not-refused",
          world_size=3, uneven_batches="refused"),
    Fault("uneven-refused-but-for-the-average",
          "A rank whose batch size equals the average raises no error for uneven batches.",
          where=always, effect=refused_where_it_is_not_the_average,
          caught_by="check_uneven_batches_raise_on_every_rank", cause="uneven-batches-not-refused",
          world_size=4, uneven_batches="refused"),
    Fault("optimizer-step-inside-backward", "A synchronised backward also takes the optimizer's step.",
          where=always, effect=stepped,
          caught_by="check_backward_does_not_change_parameters", cause="backward-moves-parameters"),
    Fault("gradient-not-reset", "zero_grad() does not clear synchronised gradients.",
          where=always, effect=in_place_of("zero_grad")(local_gradients_dropped),
          caught_by=("check_zero_grad_resets_gradients", EXACT), cause="gradient-not-reset"),
)
# fmt: on
