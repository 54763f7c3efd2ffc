"""Adapters of torch wrappers, and models that the implementations build by name."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_replicas import initial_of, spec  # noqa: E402

from ddpcheck import check_adapter  # noqa: E402
from ddpcheck.contract import Capabilities, ReplicaMethod  # noqa: E402
from ddpcheck.contract.adapter import Facets, Replica  # noqa: E402
from ddpcheck.contract.rank_context import RankContext  # noqa: E402
from ddpcheck.job import OptimizerSpec  # noqa: E402
from ddpcheck.models.spec import Linear  # noqa: E402
from ddpcheck.pytorch import adapter as torch_adapter  # noqa: E402  # all of these need torch, see importorskip
from ddpcheck.verdict import Verdict  # noqa: E402


def made_by(wrap: Any, options: Mapping[str, Any]) -> Replica:
    """The replica of a one-rank adapter without communication."""
    adapter = torch_adapter.torch_adapter("mine", wrap, start=lambda context: None)
    facets = adapter.connect(RankContext(0, 1, 0, 1))
    assert facets.make_replica is not None
    model = spec(Linear("fc", 3, 2))
    return facets.make_replica(model, initial_of(model), OptimizerSpec(), options)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """connect() exports the rank's variables; remove them after the test."""
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
    assert adapter.capabilities.has(ReplicaMethod.CHECKPOINT)
    adapter = torch_adapter.torch_adapter("mine", sampler=torch_adapter.torch_sampler)
    assert adapter.capabilities.facets == {"sampler"}


def test_options_are_the_further_parameters_of_wrap() -> None:
    seen: list[float] = []

    def wrap(module: Any, bucket_cap_mb: float = 25.0) -> Any:
        seen.append(bucket_cap_mb)
        return module

    made_by(wrap, {})
    assert set(seen) == {25.0}
    made_by(wrap, {"bucket_cap_mb": 1.0})
    assert seen[-1] == 1.0
    with pytest.raises(ValueError, match="unknown options bucket_cap; this implementation has bucket_cap_mb"):
        made_by(wrap, {"bucket_cap": 1.0})


def test_a_wrap_that_forgets_its_return_is_told() -> None:
    with pytest.raises(TypeError, match=r"wrap\(\) returned None, but should return"):
        made_by(lambda module: None, {})


class Averaging:
    """No module, and no method except __call__."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, *inputs: Any) -> Any:
        return self.module(*inputs)


def facets_of(wrap: Any, capabilities: Capabilities = torch_adapter.TORCH_PROMISES, **given: Any) -> Facets:
    adapter = torch_adapter.torch_adapter("mine", wrap, capabilities=capabilities, start=lambda context: None, **given)
    return adapter.connect(RankContext(1, 3, 1, 3))


def test_promises_of_methods_that_the_wrapper_lacks_are_not_made() -> None:
    assert facets_of(Averaging).lacks == {
        "no_sync": "Averaging has no no_sync()",
        "checkpoint": "Averaging has no state_dict()",
    }
    joins = torch_adapter.TORCH_PROMISES.but(join="divide_by_live_ranks", checkpoint=False)
    assert set(facets_of(Averaging, joins).lacks) == {"no_sync", "join"}
    own = facets_of(lambda module: module, no_sync=lambda wrapped: contextlib.nullcontext())
    assert own.lacks == {}


def refuses(module: Any) -> Any:
    raise ValueError("too small")


def test_a_wrap_that_raises_starts_and_lacks_nothing() -> None:
    assert facets_of(refuses).lacks == {}


def refusing(name: str) -> list[Verdict]:
    law = ["check_ranks_start", "check_gradients_equal_the_large_batch_exactly"]
    return check_adapter(f"{Path(__file__).with_name('wrappers') / 'refusing.py'}:{name}", [2], law, profile="quick")


def test_a_wrap_that_raises_on_one_rank_ends_the_start_with_its_error() -> None:
    """The other rank is in torch's constructor, and would wait for 30 s."""
    start, later = refusing("on_rank_1")
    assert start.diagnosis is not None
    assert "rank 1: RuntimeError: rank 1 refuses" in start.diagnosis.headline
    assert later.status == "skipped"


def test_a_wrap_that_raises_on_all_ranks_is_reported_by_each_check() -> None:
    start, later = refusing("on_all_ranks")
    assert start.status == "passed"
    assert later.diagnosis is not None
    assert "all ranks refuse" in later.diagnosis.headline


def test_looking_at_the_wrapper_draws_no_random_number() -> None:
    before = torch.random.get_rng_state()
    facets_of(Averaging)
    assert torch.equal(before, torch.random.get_rng_state())


def test_rank_and_world_size_are_the_contexts_or_those_of_a_function() -> None:
    facets = facets_of(Averaging)
    assert (facets.rank, facets.world_size) == (1, 3)
    facets = facets_of(Averaging, place=lambda context: (context.rank - 1, 2))
    assert (facets.rank, facets.world_size) == (0, 2)


def test_a_wrapper_without_no_sync_is_a_visible_skip() -> None:
    laws = ["check_nothing_is_sent_inside_no_sync", "check_random_training_programs_match_one_process"]
    here = f"{Path(__file__).with_name('wrappers') / 'right.py'}:hook_per_parameter"
    verdicts = {verdict.check: verdict for verdict in check_adapter(here, [2], laws, profile="quick")}
    skipped, passed = (verdicts[name] for name in laws)
    assert (skipped.status, skipped.reason) == ("skipped", "no_sync is not promised: HookPerParameter has no no_sync()")
    assert passed.status == "passed"
    assert "no_sync, not promised" in passed.not_covered


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
    laws = [
        "check_gradients_equal_the_large_batch_exactly",
        "check_resumed_training_matches_one_process",
        "check_random_training_programs_match_one_process",
    ]
    verdicts = check_adapter("ddpcheck_implementations.libraries.torch_fully_shard:adapter", [2], laws, profile="quick")
    assert {verdict.status for verdict in verdicts} == {"passed"}, verdicts
    assert len(verdicts) > len(laws)
