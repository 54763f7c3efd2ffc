"""Tests whether the import of a foreign module ends, in a process of its own that can always be killed.

In the driver, a signal can end only an import in Python code, in the main thread (guarded_import.py).
"""

from __future__ import annotations

import json
import linecache
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from ..launchers.process_handles import end_group

_PROGRAM = Path(__file__).with_name("single_import_program.py")
_START_SECONDS = 60.0
"""Time limit for the interpreter to start the program, on a busy machine."""
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in ', re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) .*$", re.MULTILINE)


def unending(module: str, file: Path | None, seconds: float) -> str:
    """Describe how the import of a module, or of a file under this name, fails to end within `seconds`; empty if it
    ends.
    """
    with tempfile.TemporaryFile("w+") as traces:
        asked = {
            "module": module,
            "file": str(file) if file is not None else None,
            "seconds": seconds,
            "traces": traces.fileno(),
            "path": sys.path,
        }
        process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), json.dumps(asked)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(traces.fileno(),),
            start_new_session=True,
        )
        try:
            process.wait(seconds + _START_SECONDS)
        except subprocess.TimeoutExpired:
            return f"it did not end within {seconds:g} s"
        finally:
            process.kill()
            process.wait()
            end_group(process.pid, ended=True)
        traces.seek(0)
        stacks = traces.read()
    return f"it did not end within {seconds:g} s{_place(stacks)}" if stacks else ""


def _place(stacks: str) -> str:
    """The innermost line of the main thread outside Python's own modules."""
    main = _THREAD.split(stacks)[-1]
    frames = [(name, int(line)) for name, line in _FRAME.findall(main) if name != str(_PROGRAM)]
    own = [frame for frame in frames if not frame[0].startswith((_STANDARD_LIBRARY, "<"))]
    if not frames:
        return ""
    name, line = (own or frames)[0]
    return f", and stood at {name}, line {line}: {linecache.getline(name, line).strip()}"


_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
