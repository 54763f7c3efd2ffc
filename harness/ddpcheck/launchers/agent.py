"""Ranks behind one process that starts and watches them: mpiexec, or torchrun's agent."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from .launcher import Output, clean_environment
from .mpi_segments import Segment, remove_segments, segments_under
from .ports import Port
from .process_handles import end_process, is_stopped, open_process, processes_under
from .processes import describe_exit

SCRATCH = "DDPCHECK_SCRATCH"
"""The environment variable that names an agent's own folder. Ranks that have lost their driver remove the folder."""
_LEAVE_WITHIN = 3.0
_LOOK_EVERY = 0.5


@dataclass
class Agent:
    """One running agent. Only the agent knows how its ranks ended, and reports it in its output."""

    name: str
    process: subprocess.Popen[bytes]
    written: Output
    scratch: tempfile.TemporaryDirectory[str] | None = None
    port: Port | None = None
    segments: set[Segment] = field(default_factory=set)

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
        output = Output.open()
        target = None if inherit_output else output.file
        process = subprocess.Popen(
            list(command),
            env=clean_environment({**variables, SCRATCH: scratch.name if scratch else ""}),
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=target,
            start_new_session=True,
        )
        return cls(name, process, output, scratch, port)

    def poll(self) -> str | None:
        code = self.process.poll()
        if code is None:
            around = {self.process.pid, *processes_under(self.process.pid)}
            return f"{self.name}, or a rank, is stopped by a signal" if any(map(is_stopped, around)) else None
        return f"{self.name} {describe_exit(code)}"

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

    def status_of(self, rank: int) -> str:
        return "" if self.process.poll() is None else f"rank {rank} has ended: {self.poll()}"

    def output(self) -> str:
        return self.written.tail()

    def kill(self) -> None:
        """Ask the agent to end its ranks and remove its files; kill it if it does not."""
        self.segments |= segments_under(self.process.pid)
        ranks = [open_process(pid) for pid in processes_under(self.process.pid)]
        for number in (None, signal.SIGTERM, signal.SIGKILL):
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
        remove_segments(self.segments)
        self.written.file.close()
        if self.port is not None:
            self.port.release()
        if self.scratch is not None:
            self.scratch.cleanup()
