"""Adapters of torch wrappers, and the models that the implementations know by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_replicas import initial_of, spec  # noqa: E402

from ddpcheck import check_adapter
from ddpcheck.contract.adapter import Replica  # noqa: E402
from ddpcheck.contract.rank_context import RankContext  # noqa: E402
from ddpcheck.job import OptimizerSpec  # noqa: E402
from ddpcheck.models.spec import Linear  # noqa: E402
from ddpcheck.pytorch import adapter as torch_adapter  # noqa: E402  # all of these need torch, see importorskip


def made_by(wrap: Any, options: Mapping[str, Any]) -> Replica:
    """What a one-rank adapter without communication builds."""
    adapter = torch_adapter.torch_adapter("mine", wrap, start=lambda context: None)
    facets = adapter.connect(RankContext(0, 1, 0, 1))
    assert facets.make_replica is not None
    model = spec(Linear("fc", 3, 2))
    return facets.make_replica(model, initial_of(model), OptimizerSpec(), options)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """connect() exports the rank's variables; they end with the test."""
    names = (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCH_CPP_LOG_LEVEL",
    )
    for name in names:
        monkeypatch.setenv(name, "0")


def test_facets_follow_from_what_is_given() -> None:
    adapter = torch_adapter.torch_adapter("mine", lambda module: module)
    assert adapter.capabilities.facets == {"replica"}
    assert adapter.capabilities.replica.checkpoint
    adapter = torch_adapter.torch_adapter("mine", sampler=torch_adapter.torch_sampler)
    assert adapter.capabilities.facets == {"sampler"}


def test_options_are_the_further_parameters_of_wrap() -> None:
    seen: list[float] = []

    def wrap(module: Any, bucket_cap_mb: float = 25.0) -> Any:
        seen.append(bucket_cap_mb)
        return module

    made_by(wrap, {})
    made_by(wrap, {"bucket_cap_mb": 1.0})
    assert seen == [25.0, 1.0]
    with pytest.raises(ValueError, match="unknown options bucket_cap; this implementation has bucket_cap_mb"):
        made_by(wrap, {"bucket_cap": 1.0})


def test_a_wrap_that_forgets_its_return_is_told() -> None:
    with pytest.raises(TypeError, match=r"wrap\(\) returned None, but should return"):
        made_by(lambda module: None, {})


def test_importing_the_adapter_does_not_import_torch() -> None:
    modules = (
        "ddpcheck.pytorch.adapter, ddpcheck_implementations.torch_ddp, ddpcheck_implementations.torch_steps.adapters"
    )
    root = Path(__file__).parents[1]
    subprocess.run(
        [sys.executable, "-c", f"import {modules}, sys; sys.exit('torch' in sys.modules)"],
        env={"PYTHONPATH": f"{root / 'harness'}:{root / 'implementations'}"},
        check=True,
        timeout=60,
    )


def test_resnet18_has_eleven_million_parameters_and_takes_square_images() -> None:
    from ddpcheck_implementations.resnet import ResNet18

    with torch.device("meta"):
        assert sum(p.numel() for p in ResNet18().parameters()) == 11_172_810
    narrow = ResNet18(width=4)
    assert narrow(torch.zeros(2, 64)).shape == (2, 10)
    with pytest.raises(ValueError, match="65 features are no square image"):
        narrow(torch.zeros(2, 65))


def test_deep_mlp_has_sixteen_linear_layers() -> None:
    from ddpcheck_implementations.torch_steps.deep_mlp import deep_mlp

    module = deep_mlp(width=8)
    assert sum(isinstance(layer, torch.nn.Linear) for layer in module.modules()) == 16
    assert module(torch.zeros(3, 64)).shape == (3, 10)


def test_parameters_that_are_split_over_the_ranks_are_seen_whole() -> None:
    pytest.importorskip("torch.distributed.tensor")
    adapter = Path(__file__).parents[1] / "docs" / "adapters" / "fsdp2.py"
    laws = [
        "check_gradients_equal_the_large_batch_exactly",
        "check_resumed_training_matches_one_process",
        "check_random_training_programs_match_one_process",
    ]
    verdicts = check_adapter(f"{adapter}:adapter", [2], laws, profile="quick")
    assert {verdict.status for verdict in verdicts} == {"passed"}, verdicts
    assert len(verdicts) > len(laws)
