"""The five packages import in one direction: each may import the harness, and none of the other four."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "harness": "ddpcheck",
    "implementations": "ddpcheck_implementations",
    "properties": "ddpcheck_properties",
    "benchmarks": "ddpcheck_benchmarks",
    "reports": "ddpcheck_reports",
}


def imported(file: Path) -> set[str]:
    """The first part of each name that a module imports absolutely, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module is not None:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("folder", PACKAGES)
def test_a_package_imports_the_harness_and_no_other_package(folder: str) -> None:
    others = set(PACKAGES.values()) - {"ddpcheck", PACKAGES[folder]}
    files = list((ROOT / folder / PACKAGES[folder]).rglob("*.py"))
    assert files
    assert {str(file.relative_to(ROOT)): found for file in files if (found := imported(file) & others)} == {}


def test_an_import_inside_a_function_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text("def program():\n    from ddpcheck_implementations.numpy_mpi import adapter\n", encoding="utf-8")
    assert imported(file) == {"ddpcheck_implementations"}
