"""The driver's link to one rank: two connections, and the memory files of a stuck or dead rank."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ..job import Job
from ..launchers.launcher import Launched
from ..launchers.mpi_segments import Segment, remove_segments, segments_of
from ..launchers.process_handles import end_process, is_stopped, open_process, queued
from ..storage import codec
from ..trace import RankTrace, Record, rank_from_plain
from .channel import Channel, ChannelClosed
from .memory_files import open_memory_files

_ANSWER_WITHIN = 1.5


class RankLink:
    """The driver's link to one rank."""

    def __init__(self, rank: int, jobs: Channel, sentinel: Channel, hello: dict[str, Any]) -> None:
        self.rank = rank
        self.jobs = jobs
        self.pid: int = int(hello["pid"])
        self.host: str = str(hello["host"])
        self._sentinel = sentinel
        here = self.host == socket.gethostname()
        self.files = open_memory_files(self.pid, hello["files"]) if here else None
        self._process = open_process(self.pid) if here else None
        self._segments: set[Segment] = set()

    def remember(self) -> None:
        """Record the files and segments that would remain if the rank were killed."""
        if self._process is not None:
            self._segments |= segments_of(self.pid)

    def ask(self) -> None:
        """Ask the rank for its stack; report() returns it. Ask all ranks first, so that their answers are simultaneous."""
        with suppress(ChannelClosed):
            self._sentinel.send(b"?")

    def report(self, job: Job | None) -> RankTrace:
        """Return the stack of a stuck rank; by faulthandler if the rank does not answer, as inside a C call."""
        self._sentinel.settimeout(_ANSWER_WITHIN)
        with suppress(TimeoutError, ChannelClosed):
            return rank_from_plain(codec.decode(self._sentinel.receive()))
        stack = "it does not answer: it is stopped, or inside a call that holds the interpreter's lock"
        if self.files and self._process is not None:
            with suppress(OSError):
                signal.pidfd_send_signal(self._process, signal.SIGUSR1)
            time.sleep(0.1)  # faulthandler writes in its signal handler, without any event when it is done
            stack += f"\n{self.files.stacks()}"
        return RankTrace(self.rank, "hung", self._entered(job), stack=stack.rstrip())

    def ending(self, launched: Launched) -> str:
        """Describe the end of the rank's process. Its connection may break shortly before its exit status is known."""
        limit = time.monotonic() + 0.5
        while (ended := launched.ending_of(self.rank)) is None and time.monotonic() < limit:
            time.sleep(0.005)
        return f"rank {self.rank} ended" if ended is None else ended.text

    def obituary(self, job: Job | None, launched: Launched) -> RankTrace:
        """Return the trace of a rank whose connection broke."""
        seen = time.monotonic()
        stacks = self.files.stacks() if self.files else ""
        text = "\n".join(part for part in (launched.output(), stacks, self.ending(launched)) if part)
        return RankTrace(self.rank, "died", self._entered(job), text, failed_at=seen, elsewhere=self.files is None)

    def kill(self) -> None:
        """Kill the rank if it is on this host. A rank on another host ends itself when its connections break."""
        if self._process is not None:
            self.remember()
            end_process(self._process)

    def close(self) -> None:
        remove_segments(self._segments)
        self.jobs.close()
        self._sentinel.close()
        if self.files:
            self.files.close()
            self.files = None
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def progress(self) -> tuple[int, int] | None:
        """Return the Job position of the operation entered last, and the count of operations entered; None on another host."""
        return self.files.progress() if self.files else None

    def is_stopped(self) -> bool:
        """Whether a signal such as SIGSTOP holds the process; False if it is on another host."""
        return self.files is not None and is_stopped(self.pid)

    def queued(self) -> dict[int, float]:
        """Return the seconds that each thread of the rank waited for a processor; empty if the system does not tell."""
        return queued(self.pid) if self.files else {}

    def _entered(self, job: Job | None) -> tuple[Record, ...]:
        position, _ = self.progress() or (-1, 0)
        if job is None or not 0 <= position < len(job.operations):
            return ()
        return (Record(position, job.operations[position].kind, 0.0, None, {}),)


def asked(links: Iterable[RankLink], job: Job | None) -> dict[int, RankTrace]:
    """Return the stacks of ranks, all taken at one moment."""
    each = list(links)
    for link in each:
        link.ask()
    return {link.rank: link.report(job) for link in each}
