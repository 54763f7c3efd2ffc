"""Texts of an adapter, such as its name and errors, are shown, but never interpreted."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ddpcheck.cli import main
from ddpcheck.cli.console import SafeConsole
from ddpcheck.printable_text import cut, fenced, in_markdown, printable

HOSTILE = """
from dataclasses import replace
from ddpcheck_implementations.numpy_sockets import adapter as right

def connect(context):
    raise ValueError("\\x1b[2J<script>alert(1)</script>" + "x" * 5_000_000)

adapter = replace(right, name="\\x1b[31m<b>mine</b>", connect=connect)
"""


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    assert all(character.isprintable() or character in "\t\n" or ord(character) > 0x9F for character in printable(text))
    assert printable(printable(text)) == printable(text)


def test_markdown_holds_no_tag_and_no_fence_ends_early() -> None:
    assert in_markdown("<b>a`b") == "&lt;b>a\\`b"
    assert fenced("a\n```\nb").startswith("````text\n")


def test_a_long_text_is_cut() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abc" + 100 * "d", 3) == "abc ... (100 more characters)"


def test_a_text_that_a_cut_would_not_shorten_stays_whole() -> None:
    assert cut("abcd", 3) == "abcd"


def test_a_page_of_many_lines_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    page = "\n".join(f"line {number:3}" for number in range(999))
    SafeConsole(highlight=False).print(page, soft_wrap=True)
    assert capsys.readouterr().out == f"{page}\n"


def test_a_long_line_of_a_page_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    SafeConsole(highlight=False).print(f"before\n{'x' * 5000}\nafter", soft_wrap=True)
    before, long, after = capsys.readouterr().out.splitlines()
    assert (before, after) == ("before", "after")
    assert long.endswith(" ... (1,000 more characters)")


def test_adapter_output_is_not_interpreted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(HOSTILE)
    words = (
        "check",
        "mine.py:adapter",
        "-w",
        "1",
        "--profile",
        "quick",
        "--junit",
        "junit.xml",
        "--markdown",
        "page.md",
    )
    shown = CliRunner().invoke(main, words)
    assert shown.exit_code == 1
    assert "\x1b" not in shown.output
    assert len(shown.output) < 100_000
    page = Path("page.md").read_text(encoding="utf-8")
    assert "\x1b" not in page
    assert "<b>" not in page
    assert Path("junit.xml").stat().st_size < 30_000_000  # no skip repeats the error
    assert "testsuite" in ET.parse("junit.xml").getroot().tag
