"""Ranks that a user starts, under any engine: mpirun over hosts, torchrun on several nodes, srun, a terminal for each.

The driver listens on TCP and says what to run; ranks attach by address and secret. They cannot be started again by the
harness, so the Session ends with the first Job that a rank does not survive.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..ranks.channel import Listener
from .base import Launched


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass
class Attached:
    """Wait for ranks at HOST:PORT (port 0: the system chooses). `announce` is told what to run.

    The secret is that of the environment variable DDPCHECK_SECRET if it is set, so that a batch script can give it to
    both sides; else it is drawn and shown.
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
        return Listener(self.host, self.port, secret=os.environ.get("DDPCHECK_SECRET"))

    def start(
        self,
        command: Sequence[str],
        world_size: int,
        variables: Mapping[str, str],
        *,
        inherit_output: bool = False,
    ) -> Launched:
        del inherit_output  # what they write goes where their own launcher sends it
        self._started = True
        names = ("DDPCHECK_CONTROL", "DDPCHECK_SECRET")
        exports = " ".join(f"{name}={shlex.quote(variables[name])}" for name in names)
        self.announce(
            f"waiting for {world_size} ranks; run on each of them, under the launcher of your choice:\n"
            f"  {exports} python {shlex.join(command[1:])}"
        )
        return _Elsewhere()


class _Elsewhere:
    """Ranks that are not ours to watch."""

    def poll(self) -> str | None:
        return None

    def wait(self) -> int:
        raise NotImplementedError("ranks that you start yourself are yours to wait for")

    def status_of(self, rank: int) -> str:
        return f"rank {rank} closed its connection (its own launcher knows how it ended)"

    def output(self) -> str:
        return ""

    def kill(self) -> None:
        """Their connections end, and with them the ranks."""
