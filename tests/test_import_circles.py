"""No two modules import each other, directly or in a circle: also not inside functions or for types only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ROOTS = ("harness", "implementations", "properties", "benchmarks", "reports")


def modules_of(folders: list[Path]) -> dict[str, Path]:
    """Files by the dotted names of their modules."""
    found = {}
    for folder in folders:
        for file in folder.rglob("*.py"):
            parts = file.relative_to(folder).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports_of(name: str, file: Path) -> Iterator[str]:
    """Dotted names that a module imports anywhere, each the longest that could be a module."""
    package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *(node.module or "").split(".")] if node.module else base
            yield from (".".join([*base, alias.name]) for alias in node.names)


def graph_of(modules: dict[str, Path]) -> dict[str, set[str]]:
    """The modules that each module imports. A name that is no module stands for the package or module that has it.

    A module may name its own package for a recursive type: ddpcheck.operations.Operation has operations inside.
    """
    graph = {}
    for name, file in modules.items():
        found = (each if each in modules else each.rpartition(".")[0] for each in imports_of(name, file))
        graph[name] = {each for each in found if each in modules and each not in (name, name.rpartition(".")[0])}
    return graph


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = modules_of([REPOSITORY / root for root in ROOTS])
    assert len(modules) > 500
    TopologicalSorter(graph_of(modules)).prepare()


def test_a_circle_through_a_function_and_a_type_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("def f():\n    from two import g\n")
    (tmp_path / "two.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import one\n")
    with pytest.raises(CycleError, match="cycle"):
        TopologicalSorter(graph_of(modules_of([tmp_path]))).prepare()
