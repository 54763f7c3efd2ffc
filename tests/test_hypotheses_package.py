"""Hypotheses, the values that one process computes, and laws import in one direction."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ddpcheck.hypotheses import ordered_hypotheses

HARNESS = Path(__file__).parents[1] / "harness" / "ddpcheck"
MAY_BE_IMPORTED = {
    "causes",
    "contract",
    "execution",
    "hypotheses",
    "job",
    "launchers",
    "models",
    "numerics",
    "operations",
    "oracle",
    "seeded_values",
    "trace",
}
"""Imports that hypotheses may have: evidence and its parts; no check, Finding or report."""


def imported(file: Path) -> set[str]:
    """The first part, below ddpcheck, of each harness module that a module imports."""
    found: set[str] = set()
    package = file.relative_to(HARNESS).parts[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            above = package[: len(package) - node.level + 1]
            found |= {".".join((*above, name)).partition(".")[0] for name in names}
    return found


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [("hypotheses", MAY_BE_IMPORTED), ("oracle", MAY_BE_IMPORTED - {"causes", "hypotheses"})],
)
def test_imports_go_from_hypotheses_to_the_oracle(folder: str, allowed: set[str]) -> None:
    files = list((HARNESS / folder).rglob("*.py"))
    assert files
    assert {str(file): found for file in files if (found := imported(file) - allowed)} == {}


def test_no_table_has_a_hypothesis_twice() -> None:
    tables = [table for name, table in vars(ordered_hypotheses).items() if name.startswith("OF_")]
    assert tables
    for table in tables:
        assert len({*table}) == len(table)
