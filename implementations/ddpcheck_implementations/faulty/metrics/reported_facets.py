"""Samplers, random streams, metrics and scores with mistakes from issue trackers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import PlainSampler, PlainStreams, metrics, sampler, scores, streams
from ..samplers.sampler_state import RESUMED
from .metrics import NAMES, WEIGHTED
from .scores import ALL_SAMPLES, TWICE, of_all_rows, together

SHARED_OUT = "check_shards_are_disjoint_and_complete"


@sampler("rest-of-epoch-0", RESUMED, seen_in=("huggingface/accelerate#4071",), cause="rest-of-another-epoch")
class RestOfEpochZero(PlainSampler):
    """A resumed run skips samples with a second loader, whose epoch restarts at 0."""

    def __iter__(self) -> Iterator[int]:
        epoch, skipping = self.epoch, self.begin > 0
        self.epoch = 0 if skipping else epoch
        rest = super().__iter__()
        self.epoch = epoch
        return rest


@sampler("epoch-read-once-more", RESUMED, seen_in=("huggingface/accelerate#4233",), cause="set-epoch-lost-after-load")
class ReadOnceMore(PlainSampler):
    """The end of a resumed epoch does not advance the epoch counter, so the epoch is read again."""

    resumed: int | None = None

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.resumed = self.epoch

    def stream(self) -> Sequence[int]:
        late = self.resumed is not None and self.epoch > self.resumed
        return (self.seed, self.epoch - late)


@sampler(
    "padded-again-when-resumed",
    RESUMED,
    seen_in=("intelligent-machine-learning/dlrover#1553",),
    cause="rest-padded-again",
)
class PaddedAgain(PlainSampler):
    """The rest of a padded epoch is computed from the unpadded length and padded again."""

    grown = 0

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.grown = int((self.length - state["given"] * self.world) % self.world > 0)

    def padded(self, order: Array) -> Array:
        return np.resize(order, (PlainSampler.__len__(self) + self.grown) * self.world)


@sampler(
    "cut-by-each-rank-for-itself",
    SHARED_OUT,
    seen_in=("NVIDIA-NeMo/Megatron-Bridge#5944",),
    cause="tail-not-cut",
    remainder="drop",
)
class CutByEach(PlainSampler):
    """With drop_last, each rank takes a stride of all samples, so some ranks get one sample more."""

    def __len__(self) -> int:
        return len(range(self.rank, self.length, self.world))

    def padded(self, order: Array) -> Array:
        return order[: self.length // self.world * self.world] if self.drop_last else order


@sampler(
    "padded-by-one-round", SHARED_OUT, seen_in=("pytorch/pytorch#45324",), cause="padding-taken-once", world_size=3
)
class PaddedByOneRound(PlainSampler):
    """Padding repeats the order only once, which is too short if samples are fewer than half the ranks."""

    def padded(self, order: Array) -> Array:
        return np.concatenate([order, order])[: PlainSampler.__len__(self) * self.world]


@metrics("metric-state-of-rank-0", WEIGHTED, seen_in=("Lightning-AI/pytorch-lightning#3728",), cause="one-rank-wins")
def state_of_rank_0(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Metric sums are module buffers, which each forward pass replaces with those of rank 0."""
    samples = float(comm.broadcast(np.array(float(count))))
    sums = {name: float(comm.broadcast(np.array(value * count if count else 0.0))) for name, value in metrics.items()}
    return {name: value / samples if samples else math.nan for name, value in sums.items()}


@metrics(
    "equal-metrics-reduced-twice",
    NAMES,
    seen_in=("vllm-project/speculators#759",),
    cause="equal-metrics-reduced-together",
    metrics_by_name=False,
)
def reduced_twice(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> dict[str, float]:
    """Metrics with equal values share one array, which is reduced once for each of them."""
    samples = float(comm.all_reduce(np.array(float(count))))
    arrays = {value: np.array(value * count if count else 0.0) for value in metrics.values()}
    for value in metrics.values():
        arrays[value][...] = comm.all_reduce(arrays[value])
    return {name: float(arrays[value]) / samples if samples else math.nan for name, value in metrics.items()}


@scores(
    "gathered-and-cut-apart",
    ALL_SAMPLES,
    seen_in=("horovod/horovod#2204",),
    cause="gathered-rows-cut-wrong",
    world_size=3,
)
def cut_apart(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """The start of each rank's part is computed from the previous part's length alone."""
    sizes = comm.all_gather(np.array(len(outputs), np.int64)).tolist()

    def gathered(array: Array) -> Array:
        padded = np.zeros((max(sizes), *array.shape[1:]), array.dtype)
        padded[: len(array)] = array
        row = np.concatenate([part[:size] for part, size in zip(comm.all_gather(padded), sizes, strict=True)])
        return np.concatenate([row[at : at + size] for at, size in zip([0, *sizes[:-1]], sizes, strict=True)])

    return of_all_rows(name, gathered(outputs), gathered(targets))


@scores(
    "padding-of-ranks-merged",
    TWICE,
    seen_in=("roboflow/rf-detr#1507",),
    cause="duplicates-counted",
    scores_count_once=True,
)
def padding_merged(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """The rows of all ranks are joined without removing the samples that the sampler repeated."""
    rows, truth, which = together(comm, outputs, targets, indices)
    return of_all_rows(name, rows[which >= 0], truth[which >= 0])


@streams(
    "common-number-taken-by-rank-0",
    "check_random_numbers_drawn_singly_differ_between_ranks",
    "check_common_random_numbers_are_equal_on_all_ranks",
    seen_in=("bigscience-workshop/Megatron-DeepSpeed#276",),
    cause="common-numbers-taken-by-rank",
)
class TakenByRankZero(PlainStreams):
    """Only rank 0 draws from the common random generator, so common numbers differ between ranks."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        if self.rank == 0:
            self.shared.random()
