"""Adapters of libraries: correct ones pass by their promises, and findings in the others are reported."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ddpcheck import check_adapter

pytest.importorskip("torch")

PACKAGE = "ddpcheck_implementations.libraries"


def verdicts(adapter: str, *checks: str) -> dict[str, str]:
    found = check_adapter(f"{PACKAGE}.{adapter}", [2], list(checks), profile="quick")
    return {verdict.check: verdict.status for verdict in found if verdict.check != "check_ranks_start"}


@pytest.mark.parametrize(
    ("adapter", "needed"),
    [
        ("torch_comm_hooks:fp16", "torch"),
        ("torch_comm_hooks:power_sgd_warm_up", "torch"),
        ("torch_fully_shard:adapter", "torch"),
        ("torch_zero_optimizer:adapter", "torch"),
        ("accelerate_prepare:adapter", "accelerate"),
        ("ignite_auto_model:adapter", "ignite"),
        ("lightning_fabric:adapter", "lightning"),
        ("deepspeed_engine:stage_0", "deepspeed"),
        ("deepspeed_engine:stage_1", "deepspeed"),
        ("deepspeed_engine:stage_2", "deepspeed"),
    ],
)
def test_a_library_averages_gradients_and_broadcasts_values(adapter: str, needed: str) -> None:
    pytest.importorskip(needed)
    found = verdicts(
        adapter, "check_construction_broadcasts_parameters_from_rank_0", "check_gradients_equal_the_large_batch"
    )
    assert found["check_construction_broadcasts_parameters_from_rank_0"] == "passed"
    assert set(found.values()) <= {"passed", "skipped"}


@pytest.mark.parametrize(
    ("adapter", "needed"), [("jax_collectives:adapter", "jax"), ("mlx_collectives:adapter", "mlx")]
)
def test_a_library_sums_over_ranks(adapter: str, needed: str) -> None:
    pytest.importorskip(needed)
    name = "check_all_reduce_sums_exactly"
    assert verdicts(adapter, name) == {name: "passed"}


def test_replicate_broadcasts_in_the_first_forward_only() -> None:
    name = "check_construction_broadcasts_parameters_from_rank_0"
    assert verdicts("torch_replicate:adapter", name) == {name: "failed"}


@pytest.mark.parametrize(
    ("adapter", "check"),
    [
        ("deepspeed_engine:default_settings", "check_sgd_matches_one_process"),
        ("deepspeed_engine:stage_1", "check_accumulation_without_no_sync_sums_gradients"),
    ],
)
def test_findings_in_deepspeed(adapter: str, check: str) -> None:
    pytest.importorskip("deepspeed")
    assert verdicts(adapter, check) == {check: "failed"}


def test_ranks_can_be_the_workers_of_a_ray_trainer(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    docs = Path(__file__).parents[1] / "docs"
    line = f"{sys.executable} {docs / 'how-to' / 'code' / 'by_ray.py'} {{ranks}}"
    words = ["check", f"{docs / 'adapters' / 'ray_train.py'}:adapter", "-w", "2", "-q", "--profile", "quick"]
    words += ["-c", "large_batch_exactly", "--deadline", "280", "--listen", "127.0.0.1", "--start", line]
    done = subprocess.run(
        [sys.executable, "-m", "ddpcheck", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("2 passed;"), done.stdout + done.stderr


def test_power_sgd_gives_gradients_of_low_rank() -> None:
    name = "check_gradients_equal_the_large_batch_exactly"
    (verdict,) = (
        verdict
        for verdict in check_adapter(f"{PACKAGE}.torch_comm_hooks:power_sgd", [2], [name], profile="quick")
        if verdict.check == name
    )
    assert verdict.diagnosis is not None
    assert "low-rank" in {cause.id for cause in verdict.diagnosis.causes}


def test_every_adapter_has_a_row_in_the_table() -> None:
    root = Path(__file__).parents[1]
    page = (root / "docs" / "libraries.md").read_text(encoding="utf-8")
    entries = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    names = [name for name, place in entries["ddpcheck.adapters"].items() if place.startswith(PACKAGE)]
    assert [name for name in names if f"`{name}`" not in page] == []
