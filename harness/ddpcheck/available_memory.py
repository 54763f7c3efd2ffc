"""How much memory programs on this machine can still take."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def available_memory() -> int:
    """Bytes; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0
