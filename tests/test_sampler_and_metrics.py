"""The samples of each rank, and the aggregation of local metrics."""

from __future__ import annotations

import math
from typing import Any

import pytest
from socket_ranks import on_ranks

from ddpcheck_implementations.data_parallel import (
    DistributedSampler,
    aggregate_metrics,
)
from ddpcheck_implementations.numpy_sockets.communicator import Communicator
from ddpcheck_properties.samplers.comparison import may_be_chance


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 9])
@pytest.mark.parametrize("shuffle", [False, True])
def test_samplers_share_out_all_samples_evenly(length: int, shuffle: bool) -> None:
    padded = [list(DistributedSampler(length, rank, 3, shuffle=shuffle)) for rank in range(3)]
    cut = [list(DistributedSampler(length, rank, 3, shuffle=shuffle, drop_last=True)) for rank in range(3)]
    order = [index for row in zip(*padded, strict=True) for index in row]
    assert sorted(order[:length]) == list(range(length))
    assert order[length:] == [order[place % length] for place in range(length, len(order))]
    assert [index for row in zip(*cut, strict=True) for index in row] == order[: length // 3 * 3]
    assert len(DistributedSampler(length, 0, 3)) == -(-length // 3) == len(padded[0])


def test_sampler_orders_depend_on_seed_and_epoch_apart() -> None:
    def order(seed: int, epoch: int) -> tuple[int, ...]:
        sampler = DistributedSampler(40, 0, 1, seed=seed)
        sampler.set_epoch(epoch)
        return tuple(sampler)

    pairs = [(42, 0), (42, 1), (43, 0), (43, 1), (-1, 0), (1 << 32, 0), (0, 1), (1, 0)]
    assert len({order(*pair) for pair in pairs}) == len(pairs)
    assert order(42, 1) == order(42, 1)
    assert tuple(DistributedSampler(40, 0, 1, seed=42)) == order(42, 0)
    with pytest.raises(ValueError, match="no epoch -1"):
        order(0, -1)
    with pytest.raises(ValueError, match="rank 2"):
        DistributedSampler(4, 2, 2)


def test_metrics_are_weighted_by_counts_and_ranks_without_samples_take_no_part() -> None:
    counts, losses = [3, 0, 1], [1.0, math.nan, 5.0]

    def program(comm: Communicator) -> Any:
        made = aggregate_metrics(comm, {"loss": losses[comm.rank], "accuracy": comm.rank / 4}, counts[comm.rank])
        return made, aggregate_metrics(comm, {"loss": 1.0}, 0)

    assert on_ranks(3, program) == [({"accuracy": 0.125, "loss": 2.0}, {})] * 3


def test_metrics_of_different_names_are_an_error_that_names_the_rank() -> None:
    def program(comm: Communicator) -> str:
        with pytest.raises(ValueError, match="other names") as caught:
            aggregate_metrics(comm, {"loss" if comm.rank else "accuracy": 1.0}, 1)
        return str(caught.value)

    assert ["rank 1" in message or "rank 0" in message for message in on_ranks(2, program)] == [True, True]
    with pytest.raises(ValueError, match="negative"):
        aggregate_metrics(None, {}, -1)  # type: ignore[arg-type]


def test_a_few_shuffled_blocks_may_ascend_by_chance_and_nothing_else() -> None:
    def blocks(*starts: int) -> list[int]:
        return [start + place for start in starts for place in range(8)]

    assert may_be_chance([blocks(8, 24, 40, 56), blocks(0, 16, 32, 48)])
    assert not may_be_chance([list(range(0, 80, 2)), list(range(1, 80, 2))])
    assert not may_be_chance([list(range(40)), list(range(40, 80))])
