"""A marked batch starts a micro-batch: the script's arrays are recorded, and a mirror gets the batch and the state."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ...seeded_values import Array
from ..event_journal import JournalReader
from ..recorded_process import Run
from .arrays import Found, digest, digest_of_nest, found_in_frames, rows_of, samples_in
from .batches import Misfit, nudged, put_together

REPLICA = "replica.txt"
"""In the folder of the real run: the paths of the replica's arrays, one per line."""
_SENT_BYTES = 256 << 20
_SENT_MATCHED = 1 << 22


class Marks:
    """The micro-batches of this process, and the gradients that it has sent since the last mark."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.number: int = 0
        self._sent: list[dict[str, Any]] = []
        self._bytes = 0
        self._shared: set[str] = set()
        self._found = Found()

    @property
    def inside(self) -> int:
        """1 after the first mark, 0 before it."""
        return int(self.number > 0)

    @property
    def keeps(self) -> bool:
        """Whether arrays are kept: at each mark of a recorded step, and at the next mark."""
        return self.number <= self.run.settings.steps

    def reduced(self, array: Array | None, line: str) -> None:
        """Note that a reduction is about to be called with this array."""
        if array is None or array.dtype.kind != "f" or array.size < 2 or not self.number:
            return
        self._shared |= {
            path for path, each in self._found.arrays.items() if np.may_share_memory(each, array) and each.size > 1
        }
        kept = self.number <= self.run.settings.steps and self._bytes + array.nbytes < _SENT_BYTES
        self._bytes += array.nbytes if kept else 0
        self._sent.append({"line": line, "size": array.size, "values": array.copy() if kept else None})

    def batch(self, value: Any) -> Any:
        """Handle ddpcheck.audit.batch() in this process."""
        run, number = self.run, self.number
        run.started = True
        line = run.line()
        found = found_in_frames(sys._getframe(1), value)
        given = value
        self._look(found, value, line)
        if run.mirrors:
            if number >= run.settings.steps:
                run.leave("enough")
            self._restore(found, number)
            given = self._batch_of_all(number)
        self.number += 1
        if number:
            run.stepped()
        return given

    def _look(self, found: Found, value: Any, line: str) -> None:
        """Record the state at this mark, and the values sent since the last mark."""
        run, number = self.run, self.number
        sent = b"".join(each["values"].tobytes() for each in self._sent if each["values"] is not None)
        own = [
            path
            for path, each in found.arrays.items()
            if path in self._shared
            or (1 < each.size < _SENT_MATCHED and sent and each.any() and each.tobytes() in sent)
        ]
        kept = ""
        size = samples_in(value)
        if self.keeps:
            changed = {path: each.copy() for path, each in found.arrays.items()}
            _write(run, f"arrays-{number}", changed)
            if number:
                _write(run, f"sent-{number - 1}", [each for each in self._sent if each["values"] is not None])
            if not run.mirrors:
                kept = f"batch-{number}"
                _write(run, kept, value)
        run.note(
            "mark",
            number=number,
            size=size,
            digest=digest_of_nest(value),
            rows=rows_of(value, size) if self.keeps else [],
            kept=kept,
            arrays={path: [digest(each), each.size, id(each)] for path, each in found.arrays.items()},
            containers=found.containers if not number else {},
            numbers=found.numbers if number < 2 else {},
            sent=[[each["line"], each["size"]] for each in self._sent],
            own=own,
            zero=[path for path, each in found.arrays.items() if not each.any()],
            finite=all(bool(np.isfinite(each).all()) for each in found.arrays.values()),
            line=line,
        )
        self._sent, self._bytes, self._shared, self._found = [], 0, set(), found

    def _restore(self, found: Found, number: int) -> None:
        """Set the replica in place to that of the real run's rank 0."""
        real = Path(self.run.settings.folder) / "real"
        there = read(real / "0", f"arrays-{number}") or {}
        misfits = []
        for path in (real / REPLICA).read_text(encoding="utf-8").splitlines():
            own, wanted = found.arrays.get(path), there.get(path)
            if own is None or wanted is None or own.shape != wanted.shape or not own.flags.writeable:
                misfits.append(path)
            else:
                own[...] = wanted
        if misfits:
            self.run.note("misfit", what="state", step=number, names=misfits[:8], line=self.run.line())

    def _batch_of_all(self, number: int) -> Any:
        run = self.run
        found = []
        for rank in range(run.settings.ranks):
            journal = JournalReader(Path(run.settings.folder) / "real" / str(rank))
            event = next((e for e in journal.events() if e["kind"] == "mark" and e["number"] == number), None)
            if event is not None and event["kept"]:
                found.append((read(journal.folder, event["kept"]), event["size"]))
        if not found:
            run.leave("record ends")
        sizes = tuple(size for _, size in found)
        try:
            batch = put_together([batch for batch, _ in found], sizes, int(run.settings.rolled))
            return nudged(batch) if run.settings.nudged else batch
        except Misfit as misfit:
            run.note("misfit", what="batch", step=number, why=str(misfit), line=run.line())
            return found[0][0]


def _write(run: Run, name: str, value: Any) -> None:
    path = run.journal.folder / f"{name}.pickle"
    with path.open("wb") as file:
        pickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)
    run.journal.written += path.stat().st_size


def read(folder: Path, name: str) -> Any:
    """Read a process's value of this name; None if there is none. The file was written by this audit."""
    path = folder / f"{name}.pickle"
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return pickle.load(file)
