"""Plain processes with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.

Every rank hashes strings by a seed of its own, PYTHONHASHSEED=1 + rank, unless that variable is set already: what goes
through a set comes out in different orders on different ranks, and in the same in every run. (mpiexec and torchrun leave
the seed to each interpreter, which draws one.)
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .base import Launched, Output, clean_environment
from .ports import Port, reserve_port

_POLL = 0.02
_SAY_WITHIN = 2.0


@dataclass(frozen=True)
class Processes:
    """Start every rank as a child process on this host."""

    variables: Mapping[str, str] = field(default_factory=dict)
    name: str = "processes"

    def unavailable(self) -> str | None:
        return None

    def start(
        self,
        command: Sequence[str],
        world_size: int,
        variables: Mapping[str, str],
        *,
        inherit_output: bool = False,
    ) -> Launched:
        wanted = variables.get("MASTER_PORT")
        port = reserve_port(None if wanted is None else int(wanted))
        shared = {
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port.number),
            **self.variables,
            **variables,
        }
        output = Output.open()
        target = None if inherit_output else output.file
        children: list[subprocess.Popen[bytes]] = []
        launched = _Children(children, output, port)
        try:
            for rank in range(world_size):
                own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                env = {"PYTHONHASHSEED": str(1 + rank)} | clean_environment(shared | own)
                child = subprocess.Popen(
                    list(command),
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=target,
                    stderr=target,
                    start_new_session=True,  # Ctrl-C is the driver's to handle
                )
                children.append(child)  # one by one: those that did start are killed if another cannot
        except BaseException:
            launched.kill()
            raise
        return launched


@dataclass
class _Children:
    children: list[subprocess.Popen[bytes]]
    written: Output
    port: Port
    failed: int | None = None  # the first rank that was seen to have failed

    def poll(self) -> str | None:
        codes = self._look()
        ended = next((rank for rank, code in enumerate(codes) if code is not None), None)
        first = ended if self.failed is None else self.failed
        return None if first is None else self.status_of(first)

    def wait(self) -> int:
        limit = float("inf")
        while None in (codes := self._look()) and time.monotonic() < limit:
            if self.failed is not None:
                limit = min(limit, time.monotonic() + _SAY_WITHIN)
            time.sleep(_POLL)
        return 0 if self.failed is None else codes[self.failed] or 0

    def _look(self) -> list[int | None]:
        """All exit statuses. Of ranks that failed since the last look, one that was killed goes before those that failed
        because of it: a signal's number is negative.
        """
        codes = [child.poll() for child in self.children]
        if self.failed is None:
            failed = [(code > 0, rank) for rank, code in enumerate(codes) if code]
            self.failed = min(failed)[1] if failed else None
        return codes

    def status_of(self, rank: int) -> str:
        code = self.children[rank].poll()
        return "" if code is None else f"rank {rank} {describe_exit(code)}"

    def output(self) -> str:
        return self.written.tail()

    def kill(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
        for child in self.children:
            child.wait()
        self.written.file.close()
        self.port.release()


def describe_exit(code: int) -> str:
    """What an exit status says in words."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was killed by {name}"
    return f"exited with status {code}"
