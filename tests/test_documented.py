"""Every command of the tutorial and the how-to pages gives its printed output, and every printed file is the real
one.
"""

from __future__ import annotations

import importlib.util
import os
import textwrap
from pathlib import Path

import pytest
from documented import ROOT, commands, fences, fits, normalised, written_anew

from ddpcheck_benchmarks.hosts.network import unavailable

PAGES = sorted([*(ROOT / "docs" / "tutorial").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")])
NEED_TORCH = {"hooks", "audit", "plug-in", "teach"}
SLOW = bool(os.environ.get("DDPCHECK_EVERY_FAULT"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_give_the_outputs_that_are_shown(page: Path) -> None:
    if page.stem in NEED_TORCH and importlib.util.find_spec("torch") is None:
        pytest.skip("the page is about torch, which is not installed")
    if page.stem == "several-hosts" and unavailable() is not None:
        pytest.skip(str(unavailable()))
    assert written_anew(page, slow=SLOW) == page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_shown_files_are_the_real_ones(page: Path) -> None:
    for fence in fences(page.read_text(encoding="utf-8")):
        if fence.mark == "file":
            lines = _lines((page.parent / fence.name).read_text(encoding="utf-8"))
            shown = _lines(fence.text)
            parts = (textwrap.dedent("".join(lines[start : start + len(shown)])) for start in range(len(lines)))
            assert textwrap.dedent("".join(shown)) in parts, f"{fence.name}:\n{fence.text}"


def _lines(code: str) -> list[str]:
    """Lines without empty ones: a formatter puts two between functions that are shown without their class."""
    return [line for line in code.splitlines(keepends=True) if line.strip()]


def test_commands_are_read_with_their_outputs() -> None:
    found = commands("$ one \\\n  two\nshown\n\nmore\n$ three\n")
    assert [(each.words, each.output) for each in found] == [("one \\\n  two", "shown\n\nmore"), ("three", "")]


def test_outputs_fit_but_for_seconds_and_what_is_left_out() -> None:
    assert fits("1 passed in 2.0 s", "1 passed in 17.3 s")
    assert fits("a\n...\nd", "a\nb\nc\nd")
    assert fits("", "")
    assert not fits("a\n...\nd", "a\nb\nc")
    assert not fits("", "a")
    assert not fits("a", "")
    assert normalised("   4096    1024  float32    sum   1.0") == "row of a benchmark"
