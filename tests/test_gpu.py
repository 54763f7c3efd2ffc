"""Modules on a GPU: one rank by NCCL, two that share a GPU by Gloo, and engines that do not wait for their streams."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

torch = pytest.importorskip("torch")

import gpu_adapters  # noqa: E402  # needs torch, see importorskip

from ddpcheck import Adapter, check_adapter  # noqa: E402
from ddpcheck_implementations import torch_ddp  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")

EXACT = "check_gradients_equal_the_large_batch_exactly"
AFTER_STEPS = "check_parameters_after_sgd_steps_are_exact"


def verdicts_of(adapter: Adapter, world_size: int, checks: Sequence[str]) -> dict[str, bool]:
    verdicts = check_adapter(adapter, [world_size], checks, profile="quick")
    return {verdict.check: verdict.ok for verdict in verdicts if verdict.status != "skipped"}


def test_one_rank_by_nccl() -> None:
    verdicts = verdicts_of(torch_ddp.adapter, 1, ["gradients", "trajectories", "accumulation", "all_reduce"])
    assert len(verdicts) > 20
    assert all(verdicts.values()), verdicts


@pytest.mark.parametrize(
    "adapter",
    [gpu_adapters.shared, gpu_adapters.own_stream, gpu_adapters.through_the_host],
    ids=lambda adapter: adapter.name,
)
def test_two_ranks_that_share_a_gpu(adapter: Adapter) -> None:
    verdicts = verdicts_of(adapter, 2, ["gradients", "accumulation", "replica_sync", "trajectories"])
    assert len(verdicts) > 20
    assert all(verdicts.values()), verdicts


@pytest.mark.parametrize(
    "adapter",
    [
        gpu_adapters.starts_too_early,
        gpu_adapters.ends_too_early,
        gpu_adapters.copy_not_awaited,
        gpu_adapters.hook_not_awaited,
    ],
    ids=lambda adapter: adapter.name,
)
def test_streams_that_are_not_waited_for_show(adapter: Adapter) -> None:
    assert not verdicts_of(adapter, 2, [EXACT])[EXACT]


@pytest.mark.parametrize(
    ("adapter", "law"),
    [(gpu_adapters.ends_too_early, EXACT), (gpu_adapters.step_not_awaited, AFTER_STEPS)],
    ids=["backward", "step"],
)
def test_a_stream_still_at_work_is_named(adapter: Adapter, law: str) -> None:
    verdicts = check_adapter(adapter, [2], [law], profile="quick")
    (verdict,) = [verdict for verdict in verdicts if verdict.check == law]
    assert verdict.diagnosis is not None
    assert "does not wait for work on another stream" in verdict.diagnosis.headline
