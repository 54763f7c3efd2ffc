"""The page of hard conditions (reports/hard-conditions.md) names tests that exist. Two laws of the source: nothing from
outside is unpickled, and files are written as a whole.
"""

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
WRITE_DIRECTLY = {
    "harness/ddpcheck/audit/event_journal.py": "a journal, in a folder that the audit itself has made",
    "harness/ddpcheck/audit/mpi/events.py": "a journal, in a folder that the audit itself has made",
    "harness/ddpcheck/audit/mpi/marked_batches.py": "batches of a run, in a folder that the audit itself has made",
    "harness/ddpcheck/audit/record.py": "stacks of a run, in a folder that the audit itself has made",
    "harness/ddpcheck/audit/recorded_process.py": "a mark for other ranks, in a folder that the audit itself has made",
    "harness/ddpcheck/audit/tensor_files.py": "tensors of a run, in a folder that the audit itself has made",
    "harness/ddpcheck/cli/tour.py": "a script, in a temporary folder",
    "harness/ddpcheck/grading/limited_command.py": "the log of a program while it runs",
    "harness/ddpcheck/launchers/attached.py": "a secret, in a new temporary file",
    "harness/ddpcheck/launchers/command_launcher.py": "a secret, in a temporary folder",
    "harness/ddpcheck/standalone/comparison.py": "moved to its place when it is whole; needs no ddpcheck",
    "harness/ddpcheck/storage/files.py": "moves files to their places when they are whole, and writes to devices",
    "benchmarks/ddpcheck_benchmarks/hosts/machines.py": "a program, in a temporary folder",
    "benchmarks/ddpcheck_benchmarks/hosts/network.py": "a setting of the kernel",
}
"""Files that write other than by ddpcheck.storage.files, and why each may."""
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


def test_files_are_written_as_a_whole() -> None:
    found = {
        str(file.relative_to(ROOT))
        for folder in ("harness/ddpcheck", "benchmarks/ddpcheck_benchmarks", "reports/ddpcheck_reports", "properties")
        for file in (ROOT / folder).rglob("*.py")
        if _writes(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert found == set(WRITE_DIRECTLY)


def _writes(tree: ast.AST) -> bool:
    """Whether it opens a file to write, or lets pathlib, NumPy, torch or matplotlib open one by its path."""
    return any(isinstance(node, ast.Call) and _opens(ast.unparse(node.func), node) for node in ast.walk(tree))


def _opens(function: str, call: ast.Call) -> bool:
    name = function.rpartition(".")[2]
    if name in ("write_text", "write_bytes", "tofile", "to_csv"):
        return True
    if name in ("savefig", "savez", "savez_compressed"):
        return ast.unparse(call.args[0]) != "file"
    modes = [ast.unparse(each) for each in (*call.args[:2], *(word.value for word in call.keywords))]
    return name in ("open", "fdopen") and any(re.fullmatch(r"'[wxa]b?\+?'", mode) for mode in modes)


@pytest.mark.parametrize(
    ("source", "writes"),
    [
        ("path.write_text('x')", True),
        ("open(path, 'wb')", True),
        ("path.open(mode='a')", True),
        ("path.open()", False),
        ("os.fdopen(number, 'w', encoding='ascii')", True),
        ("canvas.savefig(path)", True),
        ("canvas.savefig(file)", False),
        ("np.savez_compressed(path, **arrays)", True),
    ],
)
def test_writing_is_seen(source: str, writes: bool) -> None:
    assert _writes(ast.parse(source)) is writes
