"""The README's examples work unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ddpcheck import check_adapter
from ddpcheck.running.plan import installed_checks
from ddpcheck.running.profiles import PROFILES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PLUGGING_IN, CHECKS, RUNNING = (
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("plugging-in", "checks", "running")
)
CLAIMS = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


def example(name: str) -> str:
    found = re.search(rf"<!-- example: {name} -->\n+```python\n(.*?)```", README + PLUGGING_IN, re.DOTALL)
    assert found is not None
    return found[1]


def passes(folder: Path, name: str, world_sizes: list[int], *checks: str) -> None:
    file = folder / f"readme_{name}.py"
    file.write_text(example(name), encoding="utf-8")
    verdicts = check_adapter(f"{file}:adapter", world_sizes, checks or None, profile="quick")
    assert [(v.check, v.diagnosis or v.reason) for v in verdicts if not v.ok] == []
    assert sum(verdict.status == "passed" for verdict in verdicts) > 2 * len(world_sizes)


def test_plain_example(tmp_path: Path) -> None:
    passes(tmp_path, "plain", [1, 2, 3])


def test_torch_example(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    passes(tmp_path, "torch", [2], "gradients")


def test_tables_say_what_is_there() -> None:
    for profile in PROFILES.values():
        assert f"| {profile.name} | {profile.effort} | {', '.join(map(str, profile.world_sizes))} |" in RUNNING
    families = set(re.findall(r"^\| (\w+) \| [A-Z]", CHECKS, re.MULTILINE))
    assert families == {check.family for check in installed_checks()}


def test_named_checks_and_files_exist() -> None:
    names = {check.name for check in installed_checks()}
    named = set(re.findall(r"\bcheck_[a-z_0-9]+[a-z0-9]", README + PLUGGING_IN + CLAIMS))
    assert named - {"check_adapter", "check_name"} <= names
    links = re.findall(r"\]\(([\w/.]+)\)", README)
    assert all((ROOT / link).is_file() for link in links), links


def test_the_code_map_names_what_exists() -> None:
    page = (ROOT / "docs/code-map.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:harness|implementations|properties|benchmarks|reports)/[\w/.]*)`", page)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    harness = page.partition("## Packages of the harness")[2].partition("\n## ")[0]
    packages = {path.parent.name for path in (ROOT / "harness/ddpcheck").glob("*/__init__.py")}
    assert set(re.findall(r"`(\w+)/`", harness)) == packages - {"cli"}
