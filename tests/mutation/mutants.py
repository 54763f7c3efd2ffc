"""Mutants: every change of one place that cosmic-ray's operators, or ours, can make, and a random sample of them.

Only this module needs cosmic-ray (pip install cosmic-ray).
"""

from __future__ import annotations

import ast
import difflib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from parso.python.tree import Keyword
from parso.tree import search_ancestor

REMOVED = "RemoveStatement"


class RemoveStatement(Operator):
    """Replaces a call, or an assignment to anything but a local name, by `pass`; cosmic-ray has no such operator."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "simple_stmt" and search_ancestor(node, "funcdef") and _has_effect(node.children[0]):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        node.children[0] = Keyword("pass", node.start_pos, prefix=node.get_first_leaf().prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


def _has_effect(statement: Any) -> bool:
    if statement.type == "expr_stmt":
        target, sign = statement.children[:2]
        return target.type != "name" or getattr(sign, "value", "=") != "="
    return statement.type in ("atom_expr", "power", "del_stmt")


@dataclass(frozen=True)
class Mutant:
    """file: relative to the root. place: line and column. diff: the lines that change, as "- old" and "+ new"."""

    file: str
    place: tuple[int, int]
    operator: str
    source: str
    diff: str


@dataclass(frozen=True)
class _Spot:
    """A place, with the ways to change it: (name of the operator, operator, occurrence)."""

    file: str
    place: tuple[int, int]
    ways: tuple[tuple[str, Operator, int], ...]


def sample(root: Path, files: list[str], size: int, seed: int, only: str = "") -> Iterator[Mutant]:
    """About `size` mutants of these files, in random order. Each file gets its share of all spots, but at least two.

    A spot is a place with one kind of element (one number, one comparison). It is drawn once, and changed in one way.
    only: yield only those of files whose name contains this text; the sample is the same with or without it.
    """
    spots = {file: list(_spots(file, (root / file).read_text())) for file in files}
    total = sum(map(len, spots.values()))
    order = [file for file, there in spots.items() for _ in range(max(2, round(size * len(there) / total)))]
    random.Random(seed).shuffle(order)
    mutants = {file: _of_file(root, there, random.Random(f"{seed} {file}")) for file, there in spots.items()}
    for file in order:
        if only in file and (mutant := next(mutants[file], None)) is not None:
            yield mutant


def remade(root: Path, file: str, place: tuple[int, int], operator: str, diff: str) -> Mutant | None:
    """The mutant with this diff in the present source, nearest to the place. None if the lines no longer exist."""
    old, new = ([line[2:] for line in diff.splitlines() if line.startswith(sign)] for sign in "-+")
    lines = (root / file).read_text().splitlines(keepends=True)
    found = [at for at in range(len(lines)) if [line.strip() for line in lines[at : at + len(old)]] == old]
    if not found:
        return None
    at = min(found, key=lambda line: abs(line + 1 - place[0]))
    margin = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    source = "".join([*lines[:at], *(f"{margin}{line}\n" for line in new), *lines[at + len(old) :]])
    return Mutant(file, (at + 1, place[1]), operator, source, diff)


def _of_file(root: Path, spots: list[_Spot], chance: random.Random) -> Iterator[Mutant]:
    chance.shuffle(spots)
    return (mutant for spot in spots if (mutant := _made(root, spot, chance)) is not None)


def _spots(file: str, source: str) -> Iterator[_Spot]:
    tree = get_ast(source)
    found: dict[tuple[Any, Any, str], list[tuple[str, Operator, int]]] = {}
    for name, operator in _operators():
        positions = (position for node in ast_nodes(tree) for position in operator.mutation_positions(node))
        for occurrence, (start, end) in enumerate(positions):
            kind = name.rpartition("_")[0] or name
            found.setdefault((start, end, kind), []).append((name, operator, occurrence))
    for (start, _, _), ways in sorted(found.items(), key=lambda item: item[0]):
        yield _Spot(file, start, tuple(ways))


def _operators() -> Iterator[tuple[str, Operator]]:
    for name in sorted(cosmic_ray.plugins.operator_names()):
        operator = cosmic_ray.plugins.get_operator(name)
        if not operator.arguments():
            yield name.removeprefix("core/"), operator()
    yield REMOVED, RemoveStatement()


def _made(root: Path, spot: _Spot, chance: random.Random) -> Mutant | None:
    """The mutant; None if it is not valid Python, or changes only an annotation, which is never evaluated, or only
    promises, whose removal skips checks.
    """
    name, operator, occurrence = chance.choice(spot.ways)
    before = (root / spot.file).read_text()
    after = mutate_code(before, operator, occurrence)
    if after is None or _meaning(after) in (_meaning(before), None):
        return None
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    diff = "\n".join(f"{line[0]} {line[1:].strip()}" for line in list(lines)[2:] if not line.startswith("@@"))
    return Mutant(spot.file, spot.place, name, after, diff)


def _meaning(source: str) -> str | None:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Capabilities":
            node.keywords = []
    return ast.dump(tree)
