"""Files of failing Jobs: what a failure leaves for `ddpcheck replay`, and the names of the files beside it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from ..causes import Cause
from ..job import Job
from ..verdict import Verdict
from .files import UnreadableFile, problem_of_data, read_record, write_atomically
from .validated import fits, fits_its_types, validated_job

FAILURE_SCHEMA = "ddpcheck.failure/1"
_LONGEST_NAME = 120
"""Bytes of an adapter's name in a file name; file systems allow 255 in all. A longer name is cut and gets its hash."""


@dataclass(frozen=True)
class Failure:
    """A Job that failed a check, and everything needed to run it again.

    launcher: the launcher that started the ranks, if not the adapter's own. causes: of the failure, the likeliest
    first.
    """

    adapter: str
    world_size: int
    check: str
    job: Job
    launcher: str = ""
    causes: tuple[Cause, ...] = ()

    def save(self, path: Path) -> None:
        data = {
            "schema": FAILURE_SCHEMA,
            "adapter": self.adapter,
            "world_size": self.world_size,
            "check": self.check,
            **({"launcher": self.launcher} if self.launcher else {}),
            "causes": [cause.to_plain() for cause in self.causes],
            "job": self.job.to_plain(),
        }
        write_atomically(path, json.dumps(data, indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Failure:
        """Inverse of save. UnreadableFile if the file holds no Failure."""
        data = read_record(path, (FAILURE_SCHEMA,), "ddpcheck check writes one for each failing Job")
        try:
            for name, declared in (("adapter", str), ("world_size", int), ("check", str), ("job", dict)):
                fits(data[name], declared, name)
            job, launcher = validated_job(Job.from_plain(data["job"])), str(data.get("launcher", ""))
            causes = tuple(map(Cause.from_plain, data.get("causes", ())))
            fits_its_types(causes, "causes")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
            raise UnreadableFile(f"{path} holds no Job that can run: {problem_of_data(error)}") from error
        if job.world_size != data["world_size"]:
            raise UnreadableFile(f"{path}: world_size is {data['world_size']}, but its Job has {job.world_size} ranks")
        return Failure(data["adapter"], job.world_size, data["check"], job, launcher, causes)


def failure_file(folder: Path, verdict: Verdict) -> Path | None:
    """The path that write_failure() uses for the failing Job of a verdict; None without a Job."""
    return None if verdict.job is None or verdict.ok else folder / f"{_stem(verdict)}.json"


def text_file(folder: Path, verdict: Verdict) -> Path:
    """The path of a file for the whole text of a failure, beside that of its Job."""
    return folder / f"{_stem(verdict)}.txt"


def files_of_earlier_failure(folder: Path, reference: str, verdict: Verdict) -> tuple[Path, ...]:
    """The files in the folder of a failure of the same adapter, check and world size; none unless the Job's file names them."""
    job = folder / f"{_stem(verdict)}.json"
    try:
        known = Failure.load(job)
    except UnreadableFile:
        return ()
    if (known.adapter, known.world_size, known.check) != (reference, verdict.world_size, verdict.check):
        return ()
    return tuple(file for suffix in (".json", ".py", ".txt") if (file := job.with_suffix(suffix)).is_file())


def _stem(verdict: Verdict) -> str:
    adapter = re.sub(r"[^\w.-]", "_", verdict.adapter)
    if len(adapter.encode()) > _LONGEST_NAME:
        adapter = f"{adapter[: _LONGEST_NAME // 4]}-{hashlib.sha256(verdict.adapter.encode(errors='replace')).hexdigest()[:8]}"
    return f"{adapter}-w{verdict.world_size}-{verdict.check}"


def write_failure(folder: Path, reference: str, verdict: Verdict, launcher: str = "") -> Path | None:
    """Write the failing Job of a verdict, and return the file's path; None without a Job."""
    path = failure_file(folder, verdict)
    if path is None or verdict.job is None:
        return None
    Failure(reference, verdict.world_size, verdict.check, verdict.job, launcher, verdict.causes).save(path)
    return path
