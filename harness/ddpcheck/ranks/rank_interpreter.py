"""The interpreter and import path of a Session's ranks, if they differ from the driver's, as for another checkout."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

# chdir happens in the interpreter, because not every launcher can set the working folder
_ENTER = (
    "import os, runpy, sys; os.chdir(sys.argv.pop(1)); "
    "runpy.run_module('ddpcheck.worker', run_name='__main__', alter_sys=True)"
)


SAFE_PATH, OURS = "PYTHONSAFEPATH", "ddpcheck"
"""The variable that keeps the working folder from the front of the import path, and its value if the driver has set it."""


def search_working_folder_last() -> None:
    """Append the working folder to the import path, if the driver keeps it from the front."""
    if os.environ.get(SAFE_PATH) == OURS and os.getcwd() not in sys.path:  # noqa: PTH109  # sys.path holds strings
        sys.path.append(os.getcwd())  # noqa: PTH109


@dataclass(frozen=True)
class Interpreter:
    """The interpreter of the ranks.

    reference: the adapter, as the ranks find it (adapter_lookup.py). path: their PYTHONPATH, without the driver's; it must
    hold ddpcheck unless that is installed. folder: their working folder, which is not on their import path unless `path`
    has it. python: the interpreter, which needs NumPy.
    """

    reference: str
    path: tuple[Path, ...]
    folder: Path
    python: str = sys.executable

    def command(self) -> list[str]:
        """The command that starts one rank."""
        # -P: `path` comes before the driver's folder and this one
        return [self.python, "-P", "-c", _ENTER, str(self.folder), self.reference]

    def variables(self) -> dict[str, str]:
        """The environment for this command."""
        return {"PYTHONPATH": os.pathsep.join(map(str, self.path))}
