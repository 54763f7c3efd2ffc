"""The contract: its page matches the code, and an adapter written for version 1 still works."""

from __future__ import annotations

import inspect
import json
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import ddpcheck.contract.adapter
import ddpcheck.contract.optional_methods
import ddpcheck.contract.trainer
from ddpcheck import Adapter
from ddpcheck.cli import main
from ddpcheck.contract import CONTRACT, GROUPS, TYPICAL, Capabilities, promises_of
from ddpcheck.contract.validation import problems_of_adapter
from ddpcheck.running.check_runner import Settings, run_checks
from ddpcheck.running.profiles import PROFILES

FROZEN = Path(__file__).parent / "contract_1"
PAGE = Path(__file__).parents[1] / "docs" / "contract.md"


def plain(value: Any) -> Any:
    """A promise's value in JSON."""
    if isinstance(value, IntEnum):
        return value.name
    return sorted(value) if isinstance(value, frozenset) else value


def promises() -> dict[str, dict[str, Any]]:
    return {
        group: {
            name: plain(Capabilities().value_of(name))
            for each in promises_of(kind)
            for name in (each.name, *each.metadata["members"])
        }
        for group, kind in GROUPS.items()
    }


def signatures() -> dict[str, list[str]]:
    """The parameters of every method of every facet, by `Protocol.method`; those with a default end in "="."""
    found = {}
    for module in (ddpcheck.contract.adapter, ddpcheck.contract.optional_methods, ddpcheck.contract.trainer):
        for name, kind in vars(module).items():
            if getattr(kind, "_is_protocol", False) and kind.__module__ == module.__name__:
                for method, function in vars(kind).items():
                    if inspect.isfunction(function) and (method == "__call__" or not method.startswith("_")):
                        found[f"{name}.{method}"] = _parameters(function)
    return found


def _parameters(function: Any) -> list[str]:
    given = inspect.signature(function).parameters.values()
    return [each.name + "=" * (each.default is not each.empty) for each in given if each.name != "self"]


def test_the_page_has_the_promises_of_the_code() -> None:
    result = CliRunner().invoke(main, ["list", "capabilities", "--markdown"])
    assert PAGE.read_text(encoding="utf-8").endswith(result.output), (
        "docs/contract.md: put the output of this command at its end"
    )
    assert f"version {CONTRACT}" in PAGE.read_text(encoding="utf-8").splitlines()[0]


def test_promises_of_contract_1_are_as_they_were() -> None:
    now = promises()
    for group, frozen in json.loads((FROZEN / "promises.json").read_text()).items():
        assert {name: now[group].get(name, "gone") for name in frozen} == frozen


def test_facets_are_called_as_contract_1_says() -> None:
    now = signatures()
    frozen = json.loads((FROZEN / "signatures.json").read_text())
    assert {name: now.get(name, "gone") for name in frozen} == frozen


def test_a_bare_adapter_promises_nothing() -> None:
    assert Capabilities().facets == frozenset()
    assert all(not getattr(Capabilities(), group).offered for group in GROUPS if group != "world")


def test_typical_promises_are_promises_of_the_contract() -> None:
    assert not problems_of_adapter(Adapter("typical", lambda context: None, TYPICAL))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("version", [0, 2, "1"])
def test_an_adapter_for_another_contract_is_refused(version: Any) -> None:
    problems = problems_of_adapter(Adapter("later", lambda context: None, contract=version))  # type: ignore[arg-type, return-value]
    assert problems == [f"it is written for contract {version!r}, but this ddpcheck knows contract 1; update ddpcheck"]


@pytest.mark.parametrize("world_size", [1, 3])
def test_an_adapter_for_contract_1_keeps_working(world_size: int) -> None:
    settings = Settings(profile=PROFILES["quick"], deadline=30.0)
    verdicts = list(run_checks(f"{FROZEN / 'adapter.py'}:adapter", [world_size], settings=settings))
    assert [verdict.check for verdict in verdicts if not verdict.ok] == []
    assert {"collectives", "sampler", "metrics"} <= {each.family for each in verdicts if each.status == "passed"}
