"""Describes the machine during a measurement: hardware, versions and load. Linux; unreadable values are left out."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ddpcheck.storage.environment import Environment


def command_line() -> str:
    """The command line of this process, to repeat it."""
    return " ".join(["ddpcheck", *sys.argv[1:]])


def described() -> dict[str, Any]:
    """The facts that do not change during a measurement. `fingerprint` is a short hash of them."""
    facts: dict[str, Any] = asdict(Environment.here())
    facts["cpu"] = _line("/proc/cpuinfo", "model name")
    facts["hypervisor"] = " hypervisor" in _line("/proc/cpuinfo", "flags")
    facts["memory_gib"] = round(int((_line("/proc/meminfo", "MemTotal") or "0").split()[0]) / (1 << 20), 1)
    facts["kernel"] = platform.release()
    facts["governor"] = _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "unknown"
    facts["cpu_max"] = _text("/sys/fs/cgroup/cpu.max") or "unknown"
    with suppress(KeyError, TypeError):
        facts["blas"] = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    facts["fingerprint"] = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
    return facts


def commit() -> dict[str, Any]:
    """Commit information of the working directory, in pytest-benchmark's format."""
    found = {"id": _git("rev-parse", "HEAD") or "unversioned", "branch": _git("rev-parse", "--abbrev-ref", "HEAD")}
    return {**found, "dirty": bool(_git("status", "--porcelain")), "project": Path.cwd().name}


def pytest_machine_info(facts: dict[str, Any]) -> dict[str, Any]:
    """CPU information in pytest-benchmark's format, without the frequency, which varies."""
    return {
        "node": platform.node(),
        "processor": platform.processor(),
        "machine": platform.machine(),
        "python_version": platform.python_version(),
        "system": platform.system(),
        "release": platform.release(),
        "cpu": {"brand_raw": facts["cpu"], "count": facts["cores"]},
    }


class Load:
    """The load of the machine between construction and `so_far`."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self._average, self._ticks, self._pressure = os.getloadavg(), _ticks(), _pressure()

    def so_far(self) -> dict[str, Any]:
        """Load averages, seconds of steal (by the hypervisor), and seconds in which some thread waited for a core."""
        ticks, pressure = _ticks(), _pressure()
        return {
            "seconds": round(time.monotonic() - self._began, 1),
            "loadavg_before": [round(value, 2) for value in self._average],
            "loadavg_after": [round(value, 2) for value in os.getloadavg()],
            "steal_seconds": round((ticks - self._ticks) / os.sysconf("SC_CLK_TCK"), 2),
            "waited_seconds": None if pressure is None else round((pressure - (self._pressure or 0)) / 1e6, 2),
        }


def _ticks() -> int:
    fields = (_text("/proc/stat").splitlines() or [""])[0].split()
    return int(fields[8]) if len(fields) > 8 else 0


def _pressure() -> int | None:
    lines = _text("/proc/pressure/cpu").splitlines()
    return int(lines[0].rpartition("total=")[2]) if lines else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _line(path: str, name: str) -> str:
    for line in _text(path).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _git(*words: str) -> str:
    try:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
