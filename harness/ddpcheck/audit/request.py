"""The request for an audit, and the runs of the script that answer it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ..launchers.fork_servers import ForkServers
from .event_journal import Event
from .evidence import RandomStreams, RunSeen


@dataclass(frozen=True)
class Request:
    """The request for an audit. script: the words after `python`. deadline: seconds without any event until ranks count
    as hung. fork_servers: processes are forked from these if the kind of script allows it, which takes a third of the
    time; by default each starts an interpreter, as a user's script does. failures: the folder for the whole output of a
    script that fails; None keeps the last lines only. interrupted: the arguments of a run that stops early; resumed: of
    one that resumes it, which may be none. Without `resumed` resuming is not judged.
    """

    script: tuple[str, ...]
    ranks: int = 2
    steps: int = 6
    far: int = 400
    seconds: float = 10.0
    no_gpu: bool = False
    deadline: float = 30.0
    in_turn: bool = False
    interrupted: tuple[str, ...] = ()
    resumed: tuple[str, ...] | None = None
    random_streams: RandomStreams = "different"
    fork_servers: ForkServers | None = None
    failures: Path | None = None

    @property
    def name(self) -> str:
        return " ".join(self.script)


@dataclass(frozen=True)
class ScriptRun:
    """One run of the script: the events of each process, its stack if it hung, and the last lines of output.

    whole_output: a sentence on the file with the whole output, if there is one.
    """

    name: str
    processes: tuple[tuple[Event, ...], ...]
    stacks: tuple[str, ...]
    output: str
    hung: bool
    seconds: float
    folder: Path = field(compare=False)
    whole_output: str = ""

    def seen(self) -> RunSeen:
        """The part of the run that laws judge."""
        seconds = round(self.seconds, 3)
        return RunSeen(self.processes, self.stacks, self.output, self.hung, seconds, self.whole_output)
