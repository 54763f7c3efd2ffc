"""JUnit XML, the results that CI servers read."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

from ..verdict import Verdict
from .files import write_atomically


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
    kind = verdict.cause.id if verdict.cause else verdict.status
    if verdict.status in ("failed", "hung"):
        message = _xml_text(verdict.diagnosis.headline if verdict.diagnosis else verdict.reason)
        ET.SubElement(case, "failure", message=message, type=kind).text = text
    elif verdict.status == "unknown":
        message = _xml_text(verdict.diagnosis.headline) if verdict.diagnosis else "the check itself crashed"
        ET.SubElement(case, "error", message=message, type=kind).text = text
    elif verdict.status == "skipped":
        ET.SubElement(case, "skipped", message=_xml_text(verdict.reason))
    elif verdict.status == "expected_failure":
        ET.SubElement(
            case, "skipped", message=_xml_text(f"expected failure: {verdict.reason}"), type="xfail"
        ).text = text


def _xml_text(text: str) -> str:
    """The text without control characters, which XML 1.0 cannot hold; ranks' output may contain them."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
