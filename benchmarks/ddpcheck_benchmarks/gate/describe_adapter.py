"""Describes the adapter of one side, run by that side's interpreter: `python -P describe_adapter.py ADAPTER < jobs.json`.

Prints one JSON object. Only that side's harness is imported, which may be older than this file.
"""

import json
import sys
from typing import Any


def main() -> None:
    """Import the adapter as a rank will, and read the Jobs as a rank will."""
    import ddpcheck
    from ddpcheck.job import Job
    from ddpcheck.running.adapter_lookup import missing_modules, resolve

    told: dict[str, Any] = {
        "python": sys.version.split()[0],
        "harness": ddpcheck.__file__,
        "version": ddpcheck.__version__,
    }
    adapter, full = resolve(sys.argv[1])
    place = full.rpartition(":")[0]
    told["adapter"] = place if place.endswith(".py") else sys.modules[place].__file__
    told["missing"] = missing_modules(adapter)
    told["unknown"] = []
    for job in json.load(sys.stdin):
        try:
            Job.from_plain(job)
        except Exception as error:  # an older harness may raise any exception
            told["unknown"].append(f"{type(error).__name__}: {error}")
    import numpy

    told["numpy"] = numpy.__version__
    print("\n" + json.dumps(told))


if __name__ == "__main__":
    main()
