"""Resources of a process are counted, and changed settings are found and restored."""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from ddpcheck.execution.process_resources import count_resources
from ddpcheck.execution.process_settings import ProcessSettings


@pytest.fixture(autouse=True)
def no_alarm() -> Iterator[None]:
    """A time limit for tests uses this alarm, too."""
    left, every = signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    signal.setitimer(signal.ITIMER_REAL, left, every)


@pytest.mark.skipif("bytes" not in count_resources(), reason="this C library does not tell what malloc gave")
def test_arrays_are_counted_as_long_as_somebody_holds_them() -> None:
    before = count_resources()["bytes"]
    small, large = np.ones(8002), np.ones(10**6)
    during = count_resources()["bytes"]
    size = small.nbytes + large.nbytes - 4096  # other objects are allocated and released meanwhile
    del small, large
    assert during - before >= size
    assert during - count_resources()["bytes"] >= size


def test_small_objects_are_counted() -> None:
    before = count_resources()["objects"]
    kept = [object() for _ in range(1000)]
    assert count_resources()["objects"] - before >= len(kept)


CHANGES: list[tuple[str, Callable[[], object]]] = [
    ("the permissions of new files", lambda: os.umask(0o077)),
    ("the level, or handlers, of the root logger", lambda: logging.getLogger().addHandler(logging.NullHandler())),
    ("sys.stdout, or sys.stderr", lambda: setattr(sys, "stdout", sys.stderr)),
    ("the hook for uncaught exceptions", lambda: setattr(sys, "excepthook", print)),
    ("the timer of alarms", lambda: signal.setitimer(signal.ITIMER_REAL, 3600)),
    ("the interpreter's thread switch interval", lambda: sys.setswitchinterval(0.5)),
]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
def test_a_setting_that_is_changed_is_seen_and_put_back(name: str, change: Callable[[], object]) -> None:
    before = ProcessSettings()
    change()
    assert ProcessSettings().changed(before) == [name]
    before.restore()
    assert name not in ProcessSettings().changed(before)


@contextmanager
def smallest_numbers_taken_for_zero() -> Iterator[None]:
    """As in a library built with -ffast-math: bits 6 and 15 of MXCSR, at byte 28 of glibc's fenv_t."""
    library = ctypes.CDLL("libm.so.6")
    before, after = (ctypes.create_string_buffer(32) for _ in range(2))
    library.fegetenv(before)
    word = int.from_bytes(before.raw[28:32], "little") | 0x8040
    after.raw = before.raw[:28] + word.to_bytes(4, "little")
    library.fesetenv(after)
    try:
        yield
    finally:
        library.fesetenv(before)


@pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc", reason="sets a register of one processor"
)
def test_numbers_that_a_library_takes_for_zero_are_seen() -> None:
    before = ProcessSettings()
    with smallest_numbers_taken_for_zero():
        assert ProcessSettings().changed(before) == ["the flushing of subnormal numbers to 0"]
    assert ProcessSettings().changed(before) == []
