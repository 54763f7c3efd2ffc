"""Ranks behind one process that starts and watches them: mpiexec, or torchrun's agent."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from .base import Output, clean_environment
from .processes import describe_exit

_LEAVE_WITHIN = 3.0


@dataclass
class Agent:
    """One running agent. It alone knows how its ranks ended, and says so in its output only."""

    name: str
    process: subprocess.Popen[bytes]
    written: Output
    scratch: tempfile.TemporaryDirectory[str] | None = field(default=None)

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str],
        variables: Mapping[str, str],
        *,
        scratch: tempfile.TemporaryDirectory[str] | None = None,
        inherit_output: bool = False,
    ) -> Agent:
        output = Output.open()
        target = None if inherit_output else output.file
        process = subprocess.Popen(
            list(command),
            env=clean_environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=target,
            start_new_session=True,
        )
        return cls(name, process, output, scratch)

    def poll(self) -> str | None:
        code = self.process.poll()
        return None if code is None else f"{self.name} {describe_exit(code)}"

    def wait(self) -> int:
        """Wait until all ranks have ended; the agent's exit status."""
        return self.process.wait()

    def status_of(self, rank: int) -> str:
        ended = self.poll()
        return "" if ended is None else f"rank {rank} is gone, {ended}"

    def output(self) -> str:
        return self.written.tail()

    def kill(self) -> None:
        """Let the agent end its ranks and remove its files; by force only if it does not."""
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                with suppress(ProcessLookupError):
                    os.killpg(self.process.pid, number)
            try:
                self.process.wait(_LEAVE_WITHIN if number is not None else _LEAVE_WITHIN / 2)
                break
            except subprocess.TimeoutExpired:
                continue
        self.written.file.close()
        if self.scratch is not None:
            self.scratch.cleanup()
