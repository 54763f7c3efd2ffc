"""Kinds of training scripts: the recorder and launcher of each, and how its records are read and compared."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..launchers.launcher import Launcher
from ..launchers.mpi import Mpiexec
from ..launchers.processes import Processes
from .evidence import Evidence
from .request import Request, ScriptRun


@dataclass(frozen=True)
class ScriptKind:
    """package: a package that scripts of this kind need. recorder: the module that runs a script in each process.
    launcher: of its ranks; mirror_launcher: of a mirror, which is one process.

    read: turns a run's events into those that laws judge. evidence_of: compares the real run with its mirrors.
    """

    package: str
    recorder: str
    launcher: Callable[[], Launcher]
    mirror_launcher: Callable[[], Launcher]
    read: Callable[[ScriptRun], ScriptRun]
    evidence_of: Callable[[Request, Path, ScriptRun, Sequence[ScriptRun]], Evidence]

    def unavailable(self) -> str | None:
        """The reason why no script of this kind can be audited here, with the remedy; None if it can."""
        if importlib.util.find_spec(self.package) is None:
            return f"an audit of this script needs {self.package}; install it with: pip install {self.package}"
        return self.launcher().unavailable()


def _torch_evidence(request: Request, folder: Path, real: ScriptRun, mirrors: Sequence[ScriptRun]) -> Evidence:
    from .comparison import evidence_of

    return evidence_of(request, folder, real, mirrors)


def _mpi_read(ended: ScriptRun) -> ScriptRun:
    from .mpi.events import read

    return read(ended)


def _mpi_evidence(request: Request, folder: Path, real: ScriptRun, mirrors: Sequence[ScriptRun]) -> Evidence:
    from .mpi.comparison import evidence_of

    return evidence_of(request, folder, real, mirrors)


_WITH_TORCH = partial(
    Processes, preload=("torch", "torch._dynamo", "ddpcheck.audit.recorder.models", "ddpcheck.audit.recorder.wrappers")
)
"""Fork servers, if there are any, import what is slow to import."""
TORCH = ScriptKind("torch", "ddpcheck.audit.record", _WITH_TORCH, _WITH_TORCH, lambda ended: ended, _torch_evidence)
MPI = ScriptKind("mpi4py", "ddpcheck.audit.mpi.record", Mpiexec, Processes, _mpi_read, _mpi_evidence)


def kind_of(script: Sequence[str]) -> ScriptKind:
    """MPI for a script that imports mpi4py and not torch, directly or through its own modules; TORCH for all others."""
    if script[0] == "-m":
        root, first = Path.cwd(), Path.cwd() / Path(*script[1].split("."))
        file = first / "__main__.py" if first.is_dir() else first.with_suffix(".py")
    else:
        file = Path(script[0])
        root = file.parent
    imported = set(_imports(file, root, set()))
    return MPI if "mpi4py" in imported and "torch" not in imported else TORCH


def _imports(file: Path, root: Path, seen: set[Path]) -> Iterator[str]:
    """Names of the packages that a file imports, directly or through the script's own modules."""
    if file in seen or not file.is_file():
        return
    seen.add(file)
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module and not node.level else []
            beside = file.parent / Path(*(node.module or "").split("."))
            yield from _imports(beside.with_suffix(".py"), root, seen) if node.level else ()
        for name in names:
            yield name.partition(".")[0]
            path = root / Path(*name.split("."))
            yield from _imports(path.with_suffix(".py"), root, seen)
            yield from _imports(path / "__init__.py", root, seen)
