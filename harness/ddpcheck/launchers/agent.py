"""Ranks behind one process that starts and watches them: mpiexec, or torchrun's agent."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .agent_guard import AGENT, AgentProcesses, dismiss, start_guard
from .launcher import Ending, Output, clean_environment
from .ports import Port
from .process_handles import is_stopped, open_process, processes_under
from .processes import describe_exit

SCRATCH = "DDPCHECK_SCRATCH"
"""The environment variable that names an agent's own folder. Ranks that have lost their driver remove the folder."""
_LEAVE_WITHIN = 3.0


@dataclass
class Agent:
    """One running agent. Only the agent knows how its ranks ended, and reports it in its output.

    process: the agent itself; processes: with all that it starts. guard: ends them if this process is killed. shown: whether
    its output goes to the terminal.
    """

    name: str
    process: subprocess.Popen[bytes]
    processes: AgentProcesses
    guard: subprocess.Popen[bytes]
    written: Output
    scratch: tempfile.TemporaryDirectory[str] | None = None
    port: Port | None = None
    shown: bool = False

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
        output, folder = Output.open(), scratch.name if scratch else ""
        target = None if inherit_output else output.file
        processes = AgentProcesses()
        guard = start_guard(processes, folder)
        try:
            process = subprocess.Popen(
                list(command),
                env=clean_environment({**variables, SCRATCH: folder, AGENT: processes.token}),
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=target,
                start_new_session=True,
            )
        except BaseException:
            dismiss(guard)
            raise
        return cls(name, process, processes, guard, output, scratch, port, shown=inherit_output)

    def poll(self) -> Ending | None:
        code = self.process.poll()
        if code is None:
            around = {self.process.pid, *processes_under(self.process.pid)}
            return Ending(f"{self.name}, or a rank, is stopped by a signal") if any(map(is_stopped, around)) else None
        return Ending(f"{self.name} {describe_exit(code)}", status=code)

    def wait(self) -> int:
        """Wait until all ranks have ended; the agent's exit status."""
        return self.process.wait()

    def ending_of(self, rank: int) -> Ending | None:
        code = self.process.poll()
        return None if code is None else Ending(f"rank {rank} has ended: {self.poll()}", rank, code)

    def output(self) -> str:
        return self.written.tail()

    def kill(self) -> None:
        """Ask the agent to end its ranks and remove its files; kill it if it does not, or if its words would be shown."""
        numbers: tuple[signal.Signals | None, ...] = (None, signal.SIGTERM, signal.SIGKILL)
        if self.shown and self.process.poll() is None:
            self._silence()
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
        self.processes.end()  # ranks may be in groups of their own, and survive a killed agent
        dismiss(self.guard)
        self.written.file.close()
        if self.port is not None:
            self.port.release()
        if self.scratch is not None:
            self.scratch.cleanup()

    def _silence(self) -> None:
        """Stop the agent, then all processes below it: each would report the end of another."""
        ranks = [open_process(pid) for pid in processes_under(self.process.pid)]
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGSTOP)
        for rank in ranks:
            if rank is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(rank, signal.SIGSTOP)
                os.close(rank)
