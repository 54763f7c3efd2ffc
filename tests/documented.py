"""Commands of documentation pages with their outputs: reads, runs, compares and rewrites them.

A fence of `console` holds commands after "$ ", each with its output. A comment in the line above a fence gives its
kind:

    <!-- file: code/ring_1.py -->    the fence is this file of the page's folder, or a part of it
    <!-- write: adapter.py -->       the fence is written to this file, for the commands after it
    <!-- slow -->                    run only with DDPCHECK_EVERY_FAULT=1
    <!-- illustration -->            not run: an example of a form, or for another machine

A page runs in a folder of its own, which holds the files of code/ beside the page. A line "..." in an output matches
any lines. Seconds, and the numbers of a benchmark, are compared as one word. `python tests/documented.py PAGE.md`
writes the present outputs into a page.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOTS = tuple(str(ROOT / name) for name in ("harness", "implementations", "properties", "benchmarks", "reports"))
_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[a-z]+)(?:: (?P<name>[\w./-]+))? -->\n\n?)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
_DEADLINE = 240


@dataclass(frozen=True)
class Fence:
    """A fenced block of a page: its language, its text, the mark above it with its file, and its position."""

    kind: str
    text: str
    mark: str
    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Command:
    """A command of a console, and its output on the page."""

    words: str
    output: str


def fences(page: str) -> list[Fence]:
    return [
        Fence(
            found["kind"],
            found["text"],
            found["mark"] or "",
            found["name"] or "",
            found.start("text"),
            found.end("text"),
        )
        for found in _FENCE.finditer(page)
    ]


def commands(text: str) -> list[Command]:
    """The commands of a console, which begin with "$ "; a backslash at the end continues the line."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    found = []
    for part in parts:
        words = re.match(r"(?:.*\\\n)*.*\n?", part)
        assert words is not None
        found.append(Command(words[0].rstrip("\n"), part[words.end() :].strip("\n")))
    return found


@contextmanager
def place_for(page: Path) -> Iterator[Path]:
    """A folder with the files of code/ beside the page, and a `ddpcheck` on the search path."""
    with tempfile.TemporaryDirectory(prefix="ddpcheck-docs-") as name:
        folder = Path(name)
        place = folder / "here"
        code = page.parent / "code"
        shutil.copytree(code, place, ignore=shutil.ignore_patterns("__pycache__")) if code.is_dir() else place.mkdir()
        (folder / "bin").mkdir()
        for command, module in (("ddpcheck", "-m ddpcheck"), ("python", "")):
            program = folder / "bin" / command
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            program.chmod(0o755)
        yield place


def run(words: str, place: Path) -> str:
    """The output of a command, with standard error."""
    environment = {**os.environ, "PATH": f"{place.parent / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {
        "PYTHONPATH": ":".join(ROOTS),
        "COLUMNS": "140",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "TMPDIR": str(place.parent),
    }
    with subprocess.Popen(
        ["bash", "-c", words],
        cwd=place,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            output, _ = running.communicate(timeout=_DEADLINE)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGTERM)
            raise
    for path in (f"{place}/", *(f"{root}/" for root in ROOTS)):
        output = output.replace(path, "")
    output = re.sub(r"^  (\d+ of \d+ checks, )?\d+ s; now .*\n", "", output, flags=re.MULTILINE)
    return output.replace(str(place), ".").strip("\n")


def normalised(output: str) -> str:
    """The output without parts that differ from run to run: seconds, Jobs, benchmark numbers, paths, notes on this
    machine.
    """
    lines = [line.rstrip() for line in output.splitlines() if not line.startswith("note: ")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    text = re.sub(r"\b\d+(\.\d+)? (s|minutes|seconds|MiB|ms)\b", r"N \2", text)
    text = re.sub(r"(\d|N) +(float\d+ .*)$", lambda found: "row of a benchmark", text, flags=re.MULTILINE)
    text = re.sub(r'File "[^"]*/(ddpcheck\w*/[^"]*|python3[^"]*)", line \d+', r'File "\1", line N', text)
    text = re.sub(r"\d+ times what rounding allows", "N times what rounding allows", text)
    text = re.sub(r"sent \d+ messages", "sent N messages", re.sub(r"\b\d+ Jobs", "N Jobs", text))
    return re.sub(r"^.*row of a benchmark$", "row of a benchmark", text, flags=re.MULTILINE).strip("\n")


def fits(shown: str, got: str) -> bool:
    """Whether the output matches the page's; lines "..." on the page match any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + r"\n" for line in normalised(shown).splitlines()
    )
    return re.fullmatch(pattern, normalised(got) + "\n" if got else "") is not None


def written_anew(page: Path, *, slow: bool = True) -> str:
    """The page with the present outputs; outputs that match stay unchanged."""
    text = page.read_text(encoding="utf-8")
    changes: list[tuple[int, int, str]] = []
    with place_for(page) as place:
        for fence in fences(text):
            if fence.mark == "write":
                (place / fence.name).parent.mkdir(parents=True, exist_ok=True)
                (place / fence.name).write_text(fence.text, encoding="utf-8")
            if fence.kind != "console" or fence.mark == "illustration" or (fence.mark == "slow" and not slow):
                continue
            made = ""
            for command in commands(fence.text):
                got = run(command.words, place)
                output = command.output if fits(command.output, got) else re.sub(r"\n{3,}", "\n\n", got)
                made += f"$ {command.words}\n" + (f"{output}\n" if output else "")
            changes.append((fence.start, fence.end, made))
    for start, end, made in reversed(changes):
        text = text[:start] + made + text[end:]
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", type=Path, nargs="+")
    for given in parser.parse_args().pages:
        given.write_text(written_anew(given), encoding="utf-8")
