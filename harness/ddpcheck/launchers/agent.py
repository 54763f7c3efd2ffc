"""Ranks behind one process that starts and watches them: mpiexec, or torchrun's agent."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from .launcher import Ending, Output, clean_environment
from .mpi_segments import Segment, abandoned_segments, remove_segments, segments_under
from .ports import Port
from .process_handles import end_process, is_stopped, open_process, processes_under
from .processes import describe_exit

SCRATCH = "DDPCHECK_SCRATCH"
"""The environment variable that names an agent's own folder. Ranks that have lost their driver remove the folder."""
_LEAVE_WITHIN = 3.0
_LOOK_EVERY = 0.5


@dataclass
class Agent:
    """One running agent. Only the agent knows how its ranks ended, and reports it in its output.

    shown: whether its output goes to the terminal.
    """

    name: str
    process: subprocess.Popen[bytes]
    written: Output
    scratch: tempfile.TemporaryDirectory[str] | None = None
    port: Port | None = None
    segments: set[Segment] = field(default_factory=set)
    shown: bool = False
    started: float = field(default_factory=time.time)

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str],
        variables: Mapping[str, str],
        *,
        scratch: tempfile.TemporaryDirectory[str] | None = None,
        port: Port | None = None,
        inherit_output: bool = False,
    ) -> Agent:
        output, started = Output.open(), time.time()
        target = None if inherit_output else output.file
        process = subprocess.Popen(
            list(command),
            env=clean_environment({**variables, SCRATCH: scratch.name if scratch else ""}),
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=target,
            start_new_session=True,
        )
        return cls(name, process, output, scratch, port, shown=inherit_output, started=started)

    def poll(self) -> Ending | None:
        code = self.process.poll()
        if code is None:
            around = {self.process.pid, *processes_under(self.process.pid)}
            return Ending(f"{self.name}, or a rank, is stopped by a signal") if any(map(is_stopped, around)) else None
        return Ending(f"{self.name} {describe_exit(code)}", status=code)

    def exit_code(self) -> int | None:
        """The agent's exit status, None while it runs. kill() removes the segments that its ranks have at this time."""
        self.segments |= segments_under(self.process.pid)
        return self.process.poll()

    def wait(self) -> int:
        """Wait until all ranks have ended; the agent's exit status."""
        while True:
            self.segments |= segments_under(self.process.pid)
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(_LOOK_EVERY)

    def ending_of(self, rank: int) -> Ending | None:
        code = self.process.poll()
        return None if code is None else Ending(f"rank {rank} has ended: {self.poll()}", rank, code)

    def output(self) -> str:
        return self.written.tail()

    def kill(self) -> None:
        """Ask the agent to end its ranks and remove its files; kill it if it does not, or if its words would be shown."""
        self.segments |= segments_under(self.process.pid)
        ranks = [open_process(pid) for pid in processes_under(self.process.pid)]
        numbers: tuple[signal.Signals | None, ...] = (None, signal.SIGTERM, signal.SIGKILL)
        if self.shown and self.process.poll() is None:
            self._silence(ranks)
            numbers = (signal.SIGKILL,)
        for number in numbers:
            if number is not None:
                with suppress(ProcessLookupError):
                    os.killpg(self.process.pid, number)
            try:
                self.process.wait(_LEAVE_WITHIN if number is not None else _LEAVE_WITHIN / 2)
                break
            except subprocess.TimeoutExpired:
                continue
        for rank in ranks:  # ranks may be in groups of their own, and survive a killed agent
            if rank is not None:
                end_process(rank)
                os.close(rank)
        remove_segments(self.segments | abandoned_segments(self.started))
        self.written.file.close()
        if self.port is not None:
            self.port.release()
        if self.scratch is not None:
            self.scratch.cleanup()

    def _silence(self, ranks: Sequence[int | None]) -> None:
        """Stop the agent, then all processes below it: each would report the end of another."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGSTOP)
        for rank in ranks:
            if rank is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(rank, signal.SIGSTOP)
