"""The memory that programs on this machine can still allocate."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def available_memory() -> int:
    """The number of bytes; 0 if the system does not report it."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0
