"""One process of an audit: its run, its progress, and when it ends.

A run has three parts. In the first `steps` optimizer steps everything is recorded, tensors too. In the second part, of `seconds`
or up to `far` steps, calls and batches are recorded, and digests in some steps (recorder/compared_steps.py). Then the epoch in
progress ends early, so that evaluation, checkpoint and the next epoch come; two steps later the process ends. Rank 0 announces
the step at which the epoch ends some steps ahead, since no rank may wait for one that has left.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from .event_journal import JournalWriter

VARIABLE = "DDPCHECK_AUDIT"
"""The environment variable that holds the settings of a process, as JSON."""
AFTER_CUT = 2
_AHEAD = 4
_WAIT_FOR_OTHERS = 20.0
_CALLS = frozenset({"collective", "forward", "backward", "clip", "no_sync", "unscale"})


def root_of(words: Sequence[str]) -> Path:
    """The folder that lines of a script are relative to. words: those after `python`."""
    return Path.cwd() if words[0] == "-m" else Path(words[0]).resolve().parent


def _peak_memory() -> int:
    """The most bytes that this process held: Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@dataclass(frozen=True)
class RunSettings:
    """folder: of the whole audit. name: real, or a mirror's. steps, far: optimizer steps recorded in full, and at all.

    mirror_size: M, or 0 for the real run. order: the order in which a mirror puts the real run's ranks together.
    in_turn: a mirror gets the ranks' batches one after the other, not put together. no_gpu: cuda means the CPU. rolled:
    a mirror's samples start with the last one, which changes only the order of sums. resumes: this run is compared with
    a resumed run, including the parameters after each step. nudged: a mirror's inputs and parameters differ in the last
    place, which shows the rounding noise of sums that cancel.
    """

    folder: str
    name: str
    ranks: int
    steps: int
    far: int
    mirror_size: int = 0
    order: tuple[int, ...] = ()
    in_turn: bool = False
    no_gpu: bool = False
    seconds: float = 10.0
    rolled: bool = False
    nudged: bool = False
    resumes: bool = False

    def variables(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}

    @staticmethod
    def here() -> RunSettings:
        data = json.loads(os.environ[VARIABLE])
        return RunSettings(**{**data, "order": tuple(data["order"])})


@dataclass(eq=False)  # each part keeps its own state by run
class Run:
    """The state that the parts of a recorder share."""

    settings: RunSettings
    rank: int
    root: str
    journal: JournalWriter = field(init=False)
    step: int = 0
    backwards: int = 0
    """The number since the last optimizer step."""
    loading: int = 0
    """Above 0 while a batch is made or gradients are compressed: random draws then do not belong to samples."""
    in_backward: bool = False
    """Whether a backward pass runs: its operations are not those of the script."""
    started: bool = False
    """Whether the first batch, or the first forward with an optimizer, has been seen."""
    trains: bool = False
    """Whether a forward with an optimizer and gradients has been seen: earlier draws may be initial parameters."""
    precision: str = ""
    """The lowest precision of products in this step, if below float32."""
    samples: tuple[int, ...] = ()
    """The number of samples of each rank in the last batch."""
    recollated: bool = False
    """Whether the script's collate function has made a batch of all ranks' samples: a rank's may be padded to less."""
    calls: set[tuple[str, str, str]] = field(default_factory=set)
    """Since the last optimizer step: kind, line, and whether DDP synchronises."""
    loaders: int = 0
    cut: bool = False
    finish: Callable[[], object] = bool
    """The recorder's action when all ranks end together; by default none."""
    _end: bool = False
    _until: int = 0
    _full_since: float = 0.0

    def __post_init__(self) -> None:
        self.journal = JournalWriter(Path(self.settings.folder) / self.settings.name / str(self.rank))

    @property
    def mirrors(self) -> bool:
        return self.settings.mirror_size > 0

    @property
    def full(self) -> bool:
        """Whether everything is recorded now, including tensors."""
        return self.step < self.settings.steps

    def line(self) -> str:
        """The script's own line that is running."""
        from .recorder.patching import own_line

        return own_line(self.root)

    def callers(self) -> list[str]:
        """The script's lines that called this line, innermost first."""
        from .recorder.patching import own_callers

        return own_callers(self.root)

    def note(self, kind: str, **fields: Any) -> None:
        if kind in _CALLS:
            self.calls.add((kind, fields.get("line", ""), str(fields.get("sync", ""))))
        self.journal.note(kind, **fields)

    def stepped(self) -> None:
        """Called after an optimizer's step."""
        self.step += 1
        self.backwards = 0
        self.precision = ""
        self.calls.clear()
        if self.mirrors:
            if not self.full:
                self.leave("enough")
        elif self.step >= self._limit():
            if not self.cut and self.loaders and self.step < self._until + AFTER_CUT:
                self.cut = True
                self.note("cut", step=self.step)
            elif not self.loaders or self.step >= self._until + AFTER_CUT:
                self.leave("enough")

    def _limit(self) -> int:
        """The step at which recording stops; rank 0 chooses it, and writes it to a file for the others."""
        if self._until or self.full:
            return self._until or self.settings.far
        note = Path(self.settings.folder) / self.settings.name / "until"
        if self.rank:
            if note.is_file() and (text := note.read_text()):
                self._until = int(text)
            return self._until or self.settings.far + 1
        self._full_since = self._full_since or time.monotonic()
        late = time.monotonic() - self._full_since > self.settings.seconds
        if late or self.step + _AHEAD >= self.settings.far:
            self._until = self.step + _AHEAD
            written = note.with_name("until.new")
            written.write_text(str(self._until))
            written.rename(note)
        return self._until or self.settings.far + 1

    def leave(self, why: str, status: int = 0, **fields: Any) -> NoReturn:
        """End this process at once, without the interpreter's own exit, in which Gloo may hang."""
        if not self._end:
            self._end = True
            self.note("end", why=why, step=self.step, bytes=self.journal.written, memory=_peak_memory(), **fields)
        sys.stdout.flush()
        sys.stderr.flush()
        if self.mirrors or (status == 0 and self._wait_for_others()):
            self.finish()
        os._exit(status)

    def _wait_for_others(self) -> bool:
        """Wait, since a rank in its last collective needs this process. True if all ranks have reached their end."""
        folder = Path(self.settings.folder) / self.settings.name
        (folder / f"done-{self.rank}").touch()
        limit = time.monotonic() + _WAIT_FOR_OTHERS
        while (late := len(list(folder.glob("done-*"))) < self.settings.ranks) and time.monotonic() < limit:
            time.sleep(0.02)
        return not late
