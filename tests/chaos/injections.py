"""The injections of trials: a signal to some process at a random moment, or a lack of resources from the start."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chaos import rank_programs, surroundings
from chaos.forked_driver import Running
from chaos.surroundings import Surroundings
from chaos.victims import of_kind

_LOOK_EVERY = 0.02
_UNTIL_VICTIM = 20.0
_PAUSE = 2.0


@dataclass(frozen=True)
class Injection:
    """kind: of the processes that are hit; empty for all. strike: hits them; None if the injection acts from the start.
    limit: called before the command starts.

    judged: whether a verdict may be a failure afterwards. statuses: the allowed exit statuses. around: the command's
    surroundings. adapter: whose ranks do the injection themselves.
    """

    name: str
    kind: str = ""
    strike: Callable[[int], None] | None = None
    limit: Callable[[], None] | None = None
    judged: bool = True
    statuses: frozenset[int] = frozenset({0, 1, 2, 3})
    around: Surroundings | None = None
    adapter: str = ""


def _send(number: signal.Signals) -> Callable[[int], None]:
    def strike(pid: int) -> None:
        os.kill(pid, number)

    return strike


def _twice(pid: int) -> None:
    os.kill(pid, signal.SIGINT)
    time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)


def _pause(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(_PAUSE)
    os.kill(pid, signal.SIGCONT)


def _descriptors(count: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def _address_space(megabytes: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


_WELL = frozenset({0, 1, 2, 3})
INJECTIONS = (
    *(
        Injection(f"{name} to {'an' if kind == 'engine' else 'a'} {kind}", kind, _send(number))
        for kind in ("rank", "helper", "engine")
        for name, number in (("SIGKILL", signal.SIGKILL), ("SIGSTOP", signal.SIGSTOP), ("SIGSEGV", signal.SIGSEGV))
    ),
    Injection("SIGTERM to a rank", "rank", _send(signal.SIGTERM)),
    Injection("SIGKILL to the driver", "driver", _send(signal.SIGKILL), statuses=_WELL | {-signal.SIGKILL}),
    Injection("SIGSEGV to the driver", "driver", _send(signal.SIGSEGV), statuses=_WELL | {-signal.SIGSEGV}),
    Injection("Ctrl-C", "driver", _send(signal.SIGINT), judged=False, statuses=_WELL | {130}),
    Injection("Ctrl-C twice", "driver", _twice, judged=False, statuses=_WELL | {130}),
    Injection("SIGTERM to the driver", "driver", _send(signal.SIGTERM), judged=False, statuses=_WELL | {143}),
    Injection("SIGHUP to the driver", "driver", _send(signal.SIGHUP), judged=False, statuses=_WELL | {129}),
    Injection("pause of the driver", "driver", _pause, judged=False, statuses=frozenset({0})),
    *(Injection(f"{count} descriptors", limit=_descriptors(count), judged=False) for count in (32, 24, 16)),
    *(Injection(f"{size} MiB of address space", limit=_address_space(size), judged=False) for size in (1024, 320)),
    Injection("12 processes", around=surroundings.FEW_PROCESSES, judged=False),
    *(
        # the engine uses it: numpy_sockets has memory without a name
        Injection(name, "engine", around=around, judged=False)
        for name, around in (
            ("/dev/shm of 64 KiB", surroundings.SMALL_SHARED_MEMORY),
            ("full /dev/shm", surroundings.FULL_SHARED_MEMORY),
            ("read-only /dev/shm", surroundings.READ_ONLY_SHARED_MEMORY),
            ("no /dev/shm", surroundings.NO_SHARED_MEMORY),
        )
    ),
    Injection("full temporary folder", around=surroundings.FULL_TEMPORARY_FOLDER, judged=False),
    Injection("temporary folder of 64 KiB", around=surroundings.SMALL_TEMPORARY_FOLDER, judged=False),
    Injection("disk of 8 KiB for results", around=surroundings.FULL_DISK, judged=False),
    *(
        Injection(f"{name} link", "driver", strike, around=surroundings.OWN_NETWORK, adapter="numpy_sockets_tcp")
        for name, strike in (
            ("cut", surroundings.cut_link),
            ("slow", surroundings.slow_link),
            ("lossy", surroundings.full_link),
        )
    ),
    *(
        Injection(f"a rank that {what}", adapter=f"{rank_programs.FILE}:{name}", judged=judged)
        for what, name, judged in (
            ("floods its output", "flood", False),
            ("exits", "exits", True),
            ("raises", "raises", True),
            ("sets its clock", "clock_jumps", False),
        )
    ),
    Injection("nothing", judged=False, statuses=frozenset({0})),
)


def _listens(driver: int) -> bool:
    """Whether the command has begun, which shows in its handler of SIGTERM."""
    try:
        status = Path(f"/proc/{driver}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def struck(injection: Injection, drawn: random.Random, mark: str, running: Running) -> str:
    """Strike at a random moment; returns the process that was hit, or empty if there was none or the command had
    ended.
    """
    if injection.strike is None:
        return "all"
    until = time.monotonic() + _UNTIL_VICTIM
    later = drawn.choice((0.0, drawn.uniform(0, 0.3), drawn.uniform(0, 3)))
    while running.poll() is None and time.monotonic() < until:
        found = of_kind(injection.kind, mark, running.pid) if _listens(running.pid) else []
        if not found:
            time.sleep(_LOOK_EVERY)
            continue
        time.sleep(later)
        victim = drawn.choice(found)
        if running.poll() is None:
            with suppress(ProcessLookupError):
                injection.strike(victim)
                return str(victim)
        later = 0.0
    return ""
