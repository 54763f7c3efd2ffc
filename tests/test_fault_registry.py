"""The registry of faults: ids in one form, true origins, and the counts in the README."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from ddpcheck.causes import KINDS
from ddpcheck.running.adapter_lookup import reference_of, resolve
from ddpcheck_implementations.faulty import faults, unusual

EVERY = (*faults(), *unusual())
ROOT = Path(__file__).parents[1]


def test_names_are_in_kebab_case_and_unique_in_their_family() -> None:
    assert [fault.name for fault in EVERY if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fault.name)] == []
    assert {
        key: count for key, count in Counter((fault.family, fault.name) for fault in EVERY).items() if count > 1
    } == {}


def test_causes_are_those_of_the_catalogue() -> None:
    assert [(fault.name, fault.cause) for fault in faults() if fault.cause and fault.cause not in KINDS] == []


def test_origins_are_threads_or_files_of_a_project() -> None:
    form = re.compile(r"[\w.-]+/[\w.-]+(#\d+)?( \(.+\))?|ddpcheck \(.+\)")
    origins = [origin for fault in EVERY for origin in fault.seen_in]
    assert [origin for origin in origins if not form.fullmatch(origin)] == []


def test_the_readme_counts_what_was_seen_and_what_was_invented() -> None:
    seen = sum(bool(fault.seen_in) for fault in faults())
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"runs {len(faults()):,} adapters that are wrong on purpose" in text
    assert f"Real code has shipped {seen} of these faults" in text
    assert f"the other {len(faults()) - seen:,} are invented" in text


def test_ranks_find_every_adapter_by_its_reference() -> None:
    for fault in EVERY:
        assert resolve(reference_of(fault.adapter))[0] is fault.adapter
