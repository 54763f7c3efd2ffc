"""Hypotheses, the values that one process computes, and laws import in one direction."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

from ddpcheck.hypotheses import ordered_hypotheses

ROOT = Path(__file__).parents[1]
HARNESS = ROOT / "harness" / "ddpcheck"
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
    modules = [
        importlib.import_module(f"{ordered_hypotheses.__name__}.{found.name}")
        for found in pkgutil.iter_modules(ordered_hypotheses.__path__)
    ]
    tables = [table for module in modules for name, table in vars(module).items() if name.startswith("OF_")]
    assert tables
    for table in tables:
        assert len({*table}) == len(table)


def choices(text: str) -> list[int]:
    """The lines on which `if ... else`, `and`, `or` or a multiplication chooses a cause that the code names there."""
    tree = ast.parse(text)
    imported = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    modules = {
        alias.asname or alias.name for node in imported if node.module == "ddpcheck.causes" for alias in node.names
    }

    def names_cause(node: ast.AST) -> bool:
        calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
        kinds = (func for func in calls if isinstance(func, ast.Attribute) and func.attr.isupper())
        return any(isinstance(kind.value, ast.Name) and kind.value.id in modules for kind in kinds)

    chosen = (node for node in ast.walk(tree) if isinstance(node, (ast.IfExp, ast.BoolOp, ast.BinOp)))
    return [node.lineno for node in chosen if names_cause(node)]


@pytest.mark.parametrize(
    "choice", ["causes.A() if broken else causes.B()", "sure or causes.A()", "(causes.A(),) * broken"]
)
def test_choice_between_causes_is_seen(choice: str) -> None:
    assert choices(f"from ddpcheck.causes import replicas as causes\ntold = {choice}") == [2]


def test_checks_leave_the_choice_of_causes_to_hypotheses() -> None:
    files = list((ROOT / "properties").rglob("*.py"))
    assert files
    assert {str(file): lines for file in files if (lines := choices(file.read_text(encoding="utf-8")))} == {}
