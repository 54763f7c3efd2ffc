"""Imports one module and ends; import_trial.py runs this program to see whether the import ends.

    python single_import_program.py '{"module": NAME, "file": PATH or null, "seconds": S, "traces": FD, "path": [...]}'

The program imports nothing of ddpcheck. After `seconds` it writes the stacks of all threads to the file descriptor, and
ends. A thread in C writes them, so this works even if C code never returns.
"""

import faulthandler
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path


def main() -> None:
    asked = json.loads(sys.argv[1])
    sys.path[:], sys.argv[1:] = asked["path"], []
    faulthandler.dump_traceback_later(asked["seconds"], exit=True, file=asked["traces"])
    try:
        if asked["file"] is None:
            importlib.import_module(asked["module"])
        else:
            spec = importlib.util.spec_from_file_location(asked["module"], asked["file"])
            module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]  # an error ends the trial, too
            sys.modules[asked["module"]] = module
            sys.path.insert(0, str(Path(asked["file"]).parent))
            spec.loader.exec_module(module)  # type: ignore[union-attr]  # as above
    finally:
        os._exit(0)  # the driver imports the module itself, and reports its errors


if __name__ == "__main__":
    main()
