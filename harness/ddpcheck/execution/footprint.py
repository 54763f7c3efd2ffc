"""What a process has set and what it holds, beside its arrays: an implementation that is used leaves both as they were."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import logging
import os
import random
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

GENERATORS = ("random", "numpy.random", "torch's generator")
"""Settings that nobody but the program may move."""
MEMORY = ("bytes", "objects")
"""What is held without the system's knowledge: bytes of arrays, and Python's small objects."""
MANY = 40
"""Calls in a round from which on one small object for each shows, and fewer show all else."""
GRAIN = 32_000
"""Bytes of an array that may be left behind, and so leaves a trace in the memory of the process."""
_OPEN = ("sockets and pipes", "threads", "child processes")
"""What close() can give back, whoever still has an array or a handle."""
_PATIENCE = 0.2
"""Seconds for threads and connections that are about to end."""
_UNDER_WAY = 0.5
"""Seconds for messages that were sent, and that a slower rank has not yet taken: until then they are this rank's memory."""


class Settings:
    """The settings of this process as they are now."""

    first: ClassVar[Settings | None] = None

    @classmethod
    def at_first(cls) -> Settings:
        """Those of the first call in this process, before the first Job: what a Job leaves changed, others find so."""
        cls.first = cls.first or cls()
        return cls.first

    def __init__(self) -> None:
        self._values = {name: get() for name, (get, _) in _SETTINGS.items()}
        self._environment = dict(os.environ)
        self._signals = {number: signal.getsignal(number) for number in signal.valid_signals()}

    def changed(self, since: Settings) -> list[str]:
        """The names of those that are others than `since`, in words."""
        before, now = since._values, self._values
        came = all(before[name] is None for name in now if name.startswith("torch"))  # an import in between
        found = [name for name in now if before[name] != now[name] and not (came and name.startswith("torch"))]
        own, other = self._environment, since._environment
        names = sorted(name for name in {*own, *other} if own.get(name) != other.get(name))
        found += [f"the environment variable {name}" for name in names]
        found += [
            f"the handler of {signal.Signals(n).name}" for n in self._signals if self._signals[n] != since._signals[n]
        ]
        return found

    def generators(self) -> dict[str, str]:
        """The states of the generators that all share, as hashes; of those that there are."""
        return {name: self._values[name] for name in GENERATORS if self._values[name] is not None}

    def restore(self) -> None:
        """Set all as they were, but for random numbers: of these some are drawn, so that who seeds alike again is seen."""
        draw_from_all(1)
        for name, value in self._values.items():
            write = _SETTINGS[name][1]
            if write is not None:
                write(value)
        for name in set(os.environ) - set(self._environment):
            del os.environ[name]
        os.environ.update(self._environment)
        for number, handler in self._signals.items():
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)


def draw_from_all(count: int) -> None:
    """Draw so many numbers from each generator that all share."""
    for _ in range(count):
        random.random()
        np.random.random_sample()
        if "torch" in sys.modules:
            sys.modules["torch"].rand(1)


@cache
def held_at_first() -> Mapping[str, int]:
    """What of this close() can give back was there at the first call in this process: before connect()."""
    found = _held()
    return {name: found[name] for name in _OPEN if name in found}


def held(before: Mapping[str, int] | None = None, calls: int = 0) -> dict[str, int]:
    """Numbers of threads, descriptors and the like, and the bytes that the process has allocated.

    With more than `before` it looks again for a moment: what is about to end may take its time. So it does, with `calls`
    since then, where there is as much more memory as if each of them had left something.
    """
    found, begun = _collected(), time.monotonic()
    while before is not None:
        more = {name: found[name] - before[name] for name in before}
        ending = any(by > 0 for name, by in more.items() if name not in MEMORY)
        full = any(by >= each_leaves(name, calls) for name, by in more.items() if name == _told_by(calls))
        if time.monotonic() - begun > max(ending * _PATIENCE, full * _UNDER_WAY):
            break
        time.sleep(0.005)
        found = _collected()
    return found


def _collected() -> dict[str, int]:
    """Without what Python keeps of small objects for the next ones, as for those of the look before."""
    gc.collect()
    return _held()


def _told_by(calls: int) -> str | None:
    """The kind of memory in which so many calls show what each of them leaves."""
    return None if not calls else "objects" if calls >= MANY else "bytes"


def each_leaves(name: str, calls: int) -> int:
    """How many more there are at least if each of these calls leaves one, or nearly each, for some may be about to end."""
    return (GRAIN if name == "bytes" else 1) * (calls - 1)


def _held() -> dict[str, int]:
    found = _allocated() | {"objects": sys.getallocatedblocks()}
    with suppress(OSError):  # not Linux
        with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
            found["segments of shared memory"] = sum(
                any(name in line for name in ("/dev/shm/", "/memfd:", "/SYSV")) for line in maps
            )
        found["threads"] = _entries("/proc/self/task")
        found["descriptors"] = _entries("/proc/self/fd")
        found["sockets and pipes"] = sum(map(_has_other_end, Path("/proc/self/fd").iterdir()))
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
        found["child processes"] = len(children.split())
    return found


class _Mallinfo2(ctypes.Structure):
    """As in glibc's malloc.h."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


_mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
if _mallinfo2 is not None:
    _mallinfo2.restype = _Mallinfo2


def _allocated() -> dict[str, int]:
    """Bytes in use of what malloc gave, to NumPy and torch too; none where the C library does not tell.

    tracemalloc would slow the process down, and has crashed it where other threads were at work.
    """
    if _mallinfo2 is None:
        return {}
    found = _mallinfo2()
    return {"bytes": found.uordblks + found.hblkhd}


def _entries(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def _has_other_end(descriptor: Path) -> bool:
    try:
        return str(descriptor.readlink()).startswith(("socket:", "pipe:"))
    except OSError:  # that of the folder itself
        return False


def _numpy_state() -> str:
    _, words, *rest = np.random.get_state()
    return _digest((bytes(np.asarray(words)), rest))


def _torch_state() -> str | None:
    torch = sys.modules.get("torch")
    return None if torch is None else _digest(bytes(torch.get_rng_state().numpy()))


def _of_torch(name: str) -> Callable[[], Any]:
    """Call this function of torch, if a rank has loaded it."""
    return lambda: attrgetter(name)(sys.modules["torch"])() if "torch" in sys.modules else None


def _set_torch(name: str) -> Callable[[Any], None]:
    return lambda value: attrgetter(name)(sys.modules["torch"])(value) if value is not None else None


def _digest(value: Any) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=6).hexdigest()


def _set_filters(value: Any) -> None:
    if warnings.filters != value:
        warnings.filters[:] = value  # type: ignore[index]  # a list, whatever typeshed says


def _collect(on: bool) -> None:
    (gc.enable if on else gc.disable)()


def _root_logger() -> tuple[int, list[logging.Handler]]:
    root = logging.getLogger()
    return root.level, list(root.handlers)


def _set_root_logger(value: tuple[int, list[logging.Handler]]) -> None:
    logging.root.level, logging.root.handlers = value


def _set_streams(value: Any) -> None:
    sys.stdout, sys.stderr = value


def _set_hooks(value: Any) -> None:
    sys.excepthook, threading.excepthook = value


def _cpus() -> set[int] | None:
    return os.sched_getaffinity(0) if sys.platform == "linux" else None


def _set_cpus(value: set[int] | None) -> None:
    if sys.platform == "linux" and value is not None:
        os.sched_setaffinity(0, value)


def _umask() -> str:
    """Without setting it, which other threads would see."""
    with suppress(OSError):  # not Linux
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return next((line for line in lines if line.startswith("Umask")), "")
    return ""


_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any] | None]] = {
    "random": (lambda: _digest(random.getstate()), None),
    "numpy.random": (_numpy_state, None),
    "torch's generator": (_torch_state, None),
    **{
        f"torch's {name}": (_of_torch(get), _set_torch(put))
        for name, get, put in (
            ("recording of gradients", "is_grad_enabled", "set_grad_enabled"),
            ("default dtype", "get_default_dtype", "set_default_dtype"),
            ("number of threads", "get_num_threads", "set_num_threads"),
            ("detection of anomalies", "is_anomaly_enabled", "autograd.set_detect_anomaly"),
            ("precision of matrix products", "get_float32_matmul_precision", "set_float32_matmul_precision"),
        )
    },
    "the working directory": (lambda: str(Path.cwd()), os.chdir),
    "NumPy's way with floating-point errors": (np.geterr, lambda value: np.seterr(**value)),
    "the filters of warnings": (lambda: list(warnings.filters), _set_filters),
    "the default timeout of sockets": (socket.getdefaulttimeout, socket.setdefaulttimeout),
    "the garbage collector": (gc.isenabled, _collect),
    "the limit of recursion": (sys.getrecursionlimit, sys.setrecursionlimit),
    "the interval of the interpreter's switches": (sys.getswitchinterval, sys.setswitchinterval),
    "the CPUs that it may run on": (_cpus, _set_cpus),
    "the permissions of new files": (_umask, lambda value: value and os.umask(int(value.split()[1], 8))),
    "the smallest numbers, which are taken for 0": (lambda: not (np.full(1, 5e-324) * 1.0).any(), None),
    "the level, or handlers, of the root logger": (_root_logger, _set_root_logger),
    "sys.stdout, or sys.stderr": (lambda: (sys.stdout, sys.stderr), _set_streams),
    "the hook for uncaught exceptions": (lambda: (sys.excepthook, threading.excepthook), _set_hooks),
    "the timer of alarms": (
        lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        lambda on: on or signal.setitimer(signal.ITIMER_REAL, 0),
    ),
}
