"""Starts ranks by a user's command, on any hosts: mpirun with a host file, srun, or a script that calls ssh.

The driver runs the command for each start, so worlds can have any size and start again.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..ranks.channel import SECRET, SECRET_FILE, Listener
from .agent import SCRATCH, Agent
from .launcher import Launched
from .ports import reserve_port

RANKS = "{ranks}"


@dataclass(frozen=True)
class CommandLauncher:
    """Run `line`, with the number of ranks for {ranks}, followed by the command of one rank.

    The command begins with `env NAME=VALUE ...`, so that its variables reach every host. MASTER_ADDR and MASTER_PORT
    are in the environment of the line, to pass on or, as torchrun does, to replace. host: the driver's address, which
    all ranks can reach; rank 0 must be on that host. The secret of a run is in a file in the current folder, or at the
    path in the environment variable DDPCHECK_SECRET_FILE.
    """

    line: str
    host: str
    name: str = "line"
    ends_ranks_together: ClassVar[bool] = True

    def unavailable(self) -> str | None:
        try:
            words = shlex.split(self.line)
        except ValueError as error:
            return f"--start {self.line!r} cannot be read: {error}"
        if not words or RANKS not in self.line:
            return f"--start {self.line!r} should hold {RANKS}, such as: mpirun -f hosts -n {RANKS}"
        if shutil.which(words[0]) is None:
            return f"{words[0]} in --start was not found; give its path"
        return None

    def listener(self) -> Listener:
        return Listener(self.host, secret=_told_secret())

    def start(
        self,
        command: Sequence[str],
        world_size: int,
        variables: Mapping[str, str],
        *,
        inherit_output: bool = False,
    ) -> Launched:
        words = [word.replace(RANKS, str(world_size)) for word in shlex.split(self.line)]
        port = reserve_port(int(variables["MASTER_PORT"]) if "MASTER_PORT" in variables else None)
        meeting = {"MASTER_ADDR": self.host, "MASTER_PORT": str(port.number)}
        told = {name: value for name, value in variables.items() if name not in meeting}
        scratch = None
        if SECRET in told:
            secret = told.pop(SECRET)
            if SECRET_FILE in os.environ:
                told[SECRET_FILE] = str(Path(os.environ[SECRET_FILE]).absolute())
            else:
                scratch = tempfile.TemporaryDirectory(prefix=".ddpcheck-secret-", dir=Path.cwd())  # mode 0700
                file = Path(scratch.name, "secret")
                file.write_text(secret, encoding="ascii")
                told |= {SECRET_FILE: str(file), SCRATCH: scratch.name}  # ssh does not pass the environment on
        entered = [*words, "env", *(f"{name}={value}" for name, value in told.items()), *command]
        return Agent.start(words[0], entered, meeting, scratch=scratch, port=port, inherit_output=inherit_output)


def _told_secret() -> str | None:
    """The secret that the user has given to all hosts; None if one is to be drawn."""
    if SECRET in os.environ or SECRET_FILE not in os.environ:
        return os.environ.get(SECRET)
    return Path(os.environ[SECRET_FILE]).read_text(encoding="ascii").strip() or None
