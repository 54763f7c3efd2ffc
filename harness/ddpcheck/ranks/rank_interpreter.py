"""The interpreter and import path of a Session's ranks, if they differ from the driver's, as for another checkout."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

# the folder is entered after the interpreter has started: no launcher can be asked for it in the same way
_ENTER = (
    "import os, runpy, sys; os.chdir(sys.argv.pop(1)); "
    "runpy.run_module('ddpcheck.worker', run_name='__main__', alter_sys=True)"
)


SAFE_PATH, OURS = "PYTHONSAFEPATH", "ddpcheck"
"""The variable that keeps the working folder from the front of the import path, and the value by which ranks know whose it is."""


def search_here_last() -> None:
    """Append the working folder to the import path, if the driver has kept it from the front."""
    if os.environ.get(SAFE_PATH) == OURS and os.getcwd() not in sys.path:  # noqa: PTH109  # what sys.path holds are strings
        sys.path.append(os.getcwd())  # noqa: PTH109


@dataclass(frozen=True)
class Interpreter:
    """reference: the adapter, as the ranks find it (adapter_lookup.py). path: the folders on their PYTHONPATH, and nothing of the
    driver's. folder: where they run, which is not on their path unless `path` has it. python: the interpreter; it
    needs NumPy, and one of `path` must hold ddpcheck unless it is installed there.
    """

    reference: str
    path: tuple[Path, ...]
    folder: Path
    python: str = sys.executable

    def command(self) -> list[str]:
        """The command that starts one rank."""
        # -P: neither the driver's folder nor this one goes before `path`
        return [self.python, "-P", "-c", _ENTER, str(self.folder), self.reference]

    def variables(self) -> dict[str, str]:
        """The environment for this command."""
        return {"PYTHONPATH": os.pathsep.join(map(str, self.path))}
