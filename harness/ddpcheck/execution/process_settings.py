"""Settings of a process that an implementation must not change."""

from __future__ import annotations

import builtins
import gc
import hashlib
import locale
import logging
import os
import random
import resource
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

GENERATORS = ("random", "numpy.random", "torch's generator")
"""Settings that only the training program may change."""


class ProcessSettings:
    """The settings of this process at one moment."""

    first: ClassVar[ProcessSettings | None] = None

    @classmethod
    def at_first(cls) -> ProcessSettings:
        """The settings at the first call in this process, before the first Job, so that a change in one Job shows in
        later ones.
        """
        cls.first = cls.first or cls()
        return cls.first

    def __init__(self) -> None:
        self._values = {name: get() for name, (get, _) in _SETTINGS.items()}
        self._environment = dict(os.environ)
        self._signals = {number: signal.getsignal(number) for number in signal.valid_signals()}

    def changed(self, since: ProcessSettings) -> list[str]:
        """Descriptions of the settings that differ from `since`."""
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
        """Hashes of the states of the process's generators that exist."""
        return {name: self._values[name] for name in GENERATORS if self._values[name] is not None}

    def restore(self) -> None:
        """Restore all settings but random generators. Numbers are drawn from these, so that an equal seed shows as a
        change.
        """
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
    """Draw this many numbers from each of the process's generators."""
    for _ in range(count):
        random.random()
        np.random.random_sample()
        if "torch" in sys.modules:
            sys.modules["torch"].rand(1)


def _numpy_state() -> str:
    _, words, *rest = np.random.get_state()
    return _digest((bytes(np.asarray(words)), rest))


def _torch_state() -> str | None:
    torch = sys.modules.get("torch")
    return None if torch is None else _digest(bytes(torch.get_rng_state().numpy()))


def _of_torch(name: str) -> Callable[[], Any]:
    """A function that calls this function of torch, if torch is loaded."""
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


def _limits() -> dict[int, tuple[int, int]]:
    numbers = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
    return {number: resource.getrlimit(number) for number in numbers}


def _set_limits(value: dict[int, tuple[int, int]]) -> None:
    for number, limit in value.items():
        with suppress(ValueError, OSError):  # a lowered hard limit cannot be raised
            resource.setrlimit(number, limit)


def _set_path(value: list[str]) -> None:
    sys.path[:] = value


def _set_print(value: Callable[..., None]) -> None:
    builtins.print = value


def _set_tracing(value: Any) -> None:
    sys.settrace(value[0])
    sys.setprofile(value[1])


def _umask() -> str:
    """Read umask from /proc: setting it to read it would affect other threads."""
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
    "NumPy's handling of floating-point errors": (np.geterr, lambda value: np.seterr(**value)),
    "the filters of warnings": (lambda: list(warnings.filters), _set_filters),
    "the default timeout of sockets": (socket.getdefaulttimeout, socket.setdefaulttimeout),
    "the garbage collector": (gc.isenabled, _collect),
    "the limit of recursion": (sys.getrecursionlimit, sys.setrecursionlimit),
    "the interpreter's thread switch interval": (sys.getswitchinterval, sys.setswitchinterval),
    "the CPU affinity": (_cpus, _set_cpus),
    "the permissions of new files": (_umask, lambda value: value and os.umask(int(value.split()[1], 8))),
    "the flushing of subnormal numbers to 0": (lambda: not (np.full(1, 5e-324) * 1.0).any(), None),
    "the level, or handlers, of the root logger": (_root_logger, _set_root_logger),
    "sys.stdout, or sys.stderr": (lambda: (sys.stdout, sys.stderr), _set_streams),
    "print()": (lambda: builtins.print, _set_print),
    "NumPy's print options": (np.get_printoptions, lambda value: np.set_printoptions(**value)),
    "the locale": (lambda: locale.setlocale(locale.LC_ALL), lambda value: locale.setlocale(locale.LC_ALL, value)),
    "the folders on sys.path": (lambda: list(sys.path), _set_path),
    "the trace or profile function": (lambda: (sys.gettrace(), sys.getprofile()), _set_tracing),
    "limits of resources": (_limits, _set_limits),
    "the priority of the process": (lambda: os.getpriority(os.PRIO_PROCESS, 0), None),
    "the hook for uncaught exceptions": (lambda: (sys.excepthook, threading.excepthook), _set_hooks),
    "the timer of alarms": (
        lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        lambda on: on or signal.setitimer(signal.ITIMER_REAL, 0),
    ),
}
