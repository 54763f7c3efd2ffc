"""Records calls of hash() for strings, whose results differ between processes: a split or a number by them is no common one."""

from __future__ import annotations

import builtins
import os
import sys
from typing import Any

from ..recorded_process import Run
from .patching import OWN, is_library, replace


def install(run: Run) -> None:
    if run.mirrors:
        return
    process, seed = os.getpid(), os.environ.get("PYTHONHASHSEED", "random")
    noted: set[str] = set()

    def make(original: Any) -> Any:
        def hash(value: Any, /) -> int:
            if isinstance(value, (str, bytes)) and os.getpid() == process:
                file = sys._getframe(1).f_code.co_filename
                if not (file.startswith(OWN) or is_library(file)) and (line := run.line()) not in noted:
                    noted.add(line)
                    run.note("string_hash", line=line, seed=seed)
            return int(original(value))

        return hash

    replace(builtins, "hash", make)
