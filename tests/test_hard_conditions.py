"""The page of hard conditions (reports/hard-conditions.md) names tests that exist; and a door that no single test can watch."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGE = ROOT / "reports" / "hard-conditions.md"
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
UNPICKLE = {
    "harness/ddpcheck/audit/tensor_files.py": "tensors of the script, in a folder that the audit itself has made",
    "harness/ddpcheck/audit/mpi/marked_batches.py": "objects of the script, in a folder that the audit itself has made",
    "harness/ddpcheck/ranks/foreign_clients.py": "makes a pickle, to see whether an implementation loads it",
    "harness/ddpcheck/storage/dataclass_json.py": "writes keys of a cache, and loads none",
    "implementations/ddpcheck_implementations/faulty/lifecycle/rendezvous.py": "a fault: it loads what strangers send",
}
"""Files that can unpickle, and why each may."""
_MODULES = {"pickle", "shelve", "marshal", "dill", "cloudpickle"}
_SUSPICIOUS = re.compile("|".join((*_MODULES, "allow_pickle", "weights_only")))


def test_every_condition_names_tests_that_exist() -> None:
    rows = [row for row in ROWS if not row.startswith("| condition |")]
    assert len(rows) > 60
    for row in rows:
        named = NAMED.findall(row)
        assert named, f"no test: {row}"
        for file, name in named:
            assert name in _functions(HERE / file), f"{file} has no {name}"


def _functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_nothing_from_outside_is_unpickled() -> None:
    found = {
        str(file.relative_to(ROOT))
        for folder in ("harness", "implementations", "properties", "benchmarks", "reports")
        for file in (ROOT / folder).rglob("*.py")
        if _SUSPICIOUS.search(text := file.read_text(encoding="utf-8")) and _unpickles(ast.parse(text))
    }
    assert found == set(UNPICKLE)


def _unpickles(tree: ast.AST) -> bool:
    """Whether it imports pickle or a relative of it, or asks NumPy or torch for objects."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            names = {module, *(alias.name for alias in node.names)}
            if names & _MODULES:
                return True
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            return True
        if isinstance(node, ast.keyword) and node.arg == "weights_only" and ast.unparse(node.value) != "True":
            return True
    return False


@pytest.mark.parametrize(
    ("source", "unpickles"),
    [
        ("import pickle", True),
        ("from pickle import loads", True),
        ("np.load(file, allow_pickle=True)", True),
        ("np.load(file, allow_pickle=False)", False),
        ("torch.load(file, weights_only=False)", True),
    ],
)
def test_unpickling_is_seen(source: str, unpickles: bool) -> None:
    assert _unpickles(ast.parse(source)) is unpickles
