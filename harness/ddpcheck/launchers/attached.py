"""Ranks that a user starts, with any engine: mpirun over hosts, torchrun on several nodes, srun, a terminal for each
rank.

The driver listens on TCP and prints the command to run; ranks connect by address and secret. The harness cannot start
them again, so the Session ends with the first Job in which a rank ends.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..ranks.channel import CONTROL, SECRET, SECRET_FILE, Listener
from .launcher import Launched


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass
class Attached:
    """Wait for ranks at HOST:PORT (port 0: the system chooses). `announce` prints the command to run.

    If the environment variable DDPCHECK_SECRET is set, it is the secret, so that a batch script can give it to both
    sides. Otherwise a secret is drawn, and stored in a file that only this user can read. The announcement never
    contains it.
    """

    host: str
    port: int = 0
    announce: Callable[[str], None] = _say
    name: str = "attached"
    _started: bool = field(default=False, init=False)

    def unavailable(self) -> str | None:
        if self._started:
            return "attached ranks cannot be started again by the harness: start ddpcheck and the ranks afresh"
        return None

    def listener(self) -> Listener:
        return Listener(self.host, self.port, secret=os.environ.get(SECRET))

    def start(
        self,
        command: Sequence[str],
        world_size: int,
        variables: Mapping[str, str],
        *,
        inherit_output: bool = False,
    ) -> Launched:
        del inherit_output  # their own launcher decides where their output goes
        self._started = True
        exports = {CONTROL: variables[CONTROL]}
        if SECRET in os.environ:
            file, also = None, f"with the {SECRET} of this command in their environment"
        else:
            file = _secret_file(variables[SECRET])
            exports[SECRET_FILE] = str(file)
            also = f"on another host with a copy of that file, or its content in {SECRET}"
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in exports.items())
        self.announce(
            f"waiting for {world_size} ranks; run on each of them, under the launcher of your choice:\n"
            f"  {words} python {shlex.join(command[1:])}\n"
            f"{also}"
        )
        return _Elsewhere(file)


def _secret_file(secret: str) -> Path:
    """A file of mode 0600 with the secret."""
    file, name = tempfile.mkstemp(prefix="ddpcheck-secret-")
    with os.fdopen(file, "w", encoding="ascii") as opened:
        opened.write(secret)
    return Path(name)


@dataclass
class _Elsewhere:
    """Ranks that the user started, which the harness cannot watch. file: the file with their secret."""

    file: Path | None

    def poll(self) -> str | None:
        return None

    def wait(self) -> int:
        raise NotImplementedError("ddpcheck does not wait for ranks that you start yourself")

    def status_of(self, rank: int) -> str:
        return f"rank {rank} closed its connection (see the output of its own launcher)"

    def output(self) -> str:
        return ""

    def kill(self) -> None:
        """Close the connections, which ends the ranks."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)
