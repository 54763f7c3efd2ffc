"""Resuming gives equal bits, only rank 0 saves, and a failing rank stops the others."""

from __future__ import annotations

import dataclasses
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_in_threads import (
    PLAN,
    assert_same_bits,
    judged,
    on_ranks,
    small_digits,
    train,
    trained,
)

from ddpcheck.contract.adapter import Facets
from ddpcheck.training import checkpoint as files
from ddpcheck.training.datasets import DataSet
from ddpcheck.training.rank_messages import OtherRankFailed, RankExchange, TrainingFailed
from ddpcheck_implementations.data_parallel import numpy_facets


@pytest.fixture(scope="module")
def data() -> DataSet:
    return small_digits()


# ---------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("settings", [{}, {"optimizer": "adam", "lr": 0.01}, {"warmup_epochs": 2}], ids=str)
def test_resuming_equals_the_uninterrupted_run_to_the_last_bit(
    data: DataSet, tmp_path: Path, settings: dict[str, Any]
) -> None:
    plan = dataclasses.replace(PLAN, epochs=3, checkpoint=str(tmp_path / "run" / "a.npz"), **settings)
    uninterrupted = trained(plan, data, 2)
    trained(dataclasses.replace(plan, stop_after=1), data, 2)
    resumed = trained(dataclasses.replace(plan, resume=True), data, 2)
    assert_same_bits(uninterrupted, resumed)
    assert [epoch.number for epoch in resumed.epochs] == [2, 3]
    assert judged(plan, data, resumed).verdict == "equal"  # from the beginning
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["a.npz"]


def test_only_rank_0_saves(data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    savers = []
    monkeypatch.setattr(files, "save", lambda path, checkpoint: savers.append(threading.current_thread()))
    trained(dataclasses.replace(PLAN, checkpoint=str(tmp_path / "a.npz")), data, 3)
    assert len(savers) == PLAN.epochs
    assert len(set(savers)) == 1


def test_a_checkpoint_that_rank_0_cannot_save_ends_all_ranks(data: DataSet, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    results = train(dataclasses.replace(PLAN, checkpoint=str(tmp_path / "file" / "a.npz")), data, 3)
    assert isinstance(results[0], TrainingFailed)
    assert "cannot be saved" in str(results[0])
    for result in results[1:]:
        assert isinstance(result, OtherRankFailed)
        assert "rank 0 failed while saving the checkpoint" in str(result)


def test_an_interrupted_save_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    files.save(path, files.Checkpoint(PLAN, 2, 1, {"w": np.arange(3.0)}))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TrainingFailed, match="No space left"):
        files.save(path, files.Checkpoint(PLAN, 2, 2, {"w": np.zeros(3)}))
    found = files.load(path)
    assert (found.plan, found.world_size, found.epoch) == (PLAN, 2, 1)
    np.testing.assert_array_equal(found.state["w"], np.arange(3.0))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npz"]


def test_resuming_from_what_does_not_fit_says_what(data: DataSet, tmp_path: Path) -> None:
    plan = dataclasses.replace(PLAN, checkpoint=str(tmp_path / "a.npz"), epochs=1)
    again = dataclasses.replace(plan, resume=True, epochs=2)
    with pytest.raises(TrainingFailed, match="there is no checkpoint"):
        trained(again, data)
    trained(plan, data)
    with pytest.raises(TrainingFailed, match=r"lr 0\.2 instead of 0\.05"):
        trained(dataclasses.replace(again, lr=0.2), data)
    with pytest.raises(TrainingFailed, match="2 ranks instead of 1"):
        trained(again, data, 2)
    (tmp_path / "a.npz").write_text("no checkpoint")
    with pytest.raises(TrainingFailed, match="is not a checkpoint of this program"):
        trained(again, data)


# ---------------------------------------------------------------------------------------------------------------- ranks


def ranks_of(collectives: Any, rank: int, size: int) -> RankExchange:
    facets = numpy_facets(collectives, rank, size)
    assert facets.aggregate_metrics is not None
    return RankExchange(rank, size, facets.aggregate_metrics)


def test_numbers_are_gathered_through_metrics() -> None:
    results = on_ranks(3, lambda c, rank: ranks_of(c, rank, 3).gather([rank, 1000 * rank, 59999]).tolist())
    assert results == [[[0, 0, 59999], [1, 1000, 59999], [2, 2000, 59999]]] * 3


def test_rank_0_answer_or_failure_reaches_all_ranks() -> None:
    assert on_ranks(2, lambda c, rank: ranks_of(c, rank, 2).from_rank_zero(lambda: 1)) == [1, 1]

    def failing() -> int:
        raise ValueError("cannot")

    results = on_ranks(2, lambda c, rank: ranks_of(c, rank, 2).from_rank_zero(failing))
    assert [type(result) for result in results] == [ValueError, OtherRankFailed]


def test_ranks_with_unequal_shards_refuse_to_train(data: DataSet) -> None:
    def uneven(collectives: Any, rank: int, world_size: int) -> Facets:
        def make_sampler(length: int, **settings: Any) -> Any:
            return numpy_facets(collectives, rank, world_size).make_sampler(length + rank * world_size, **settings)  # type: ignore[misc]

        return dataclasses.replace(numpy_facets(collectives, rank, world_size), make_sampler=make_sampler)

    with pytest.raises(TrainingFailed, match=r"\[151, 152\] samples"):
        trained(PLAN, data, 2, wire=uneven)
