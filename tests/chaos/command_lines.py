"""Random command lines, most of them invalid: each ends in time, with a documented status and without a traceback.

python tests/chaos/command_lines.py --lines 500
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from ddpcheck.cli import COMMANDS, main

SECONDS, SECONDS_TO_END = 20, 10
"""A command that runs this long gets SIGTERM, and must end within this many further seconds."""
DOCUMENTED = frozenset({0, 1, 2, 3})
_OF_SIGTERM = frozenset({128 + signal.SIGTERM, -signal.SIGTERM})
"""A command that SIGTERM meets before it begins, or as its process ends, is ended by the system. A shell sees one status."""
_SENTENCES = ("Error: ", "Usage: ", "nothing is judged", "NOT JUDGED: ")
_WORDS = (
    *(
        "",
        "x",
        "-",
        "--",
        "nan",
        "inf",
        "-inf",
        "0",
        "-1",
        "1",
        "2",
        "1e308",
        "1e-320",
        "99999999999999999999",
        "0x10",
        "1_0",
    ),
    *(
        "1-",
        "-3",
        "3-1",
        "1-99999999",
        "1,,2",
        "\u0661",
        "\u00bd",
        "100000",
        "a" * 300,
        "\x1b[31mred",
        "\udc80",
        "<b>",
        "$\\frac$",
    ),
    *(
        "1.2.3.4...",
        "1.2.3.4:99999",
        "[::1]:x",
        "nowhere:1",
        ":0",
        "8.0.0.0..1",
        "1GbE",
        "-1B",
        "1e9GiB",
        "4B..1B",
        "1TiB",
    ),
    *(
        "numpy_sockets",
        "nosuch",
        "nosuch:adapter",
        "os:path",
        "json",
        ".",
        "/",
        "/dev/null",
        "/dev/full",
        "../../x",
        "a:b:c",
        "x=1",
    ),
    *(
        "null.json",
        "empty.json",
        "list.json",
        "deep.json",
        "number.json",
        "text.json",
        "broken.json",
        "bytes.json",
        "folder",
    ),
    *("raises.py:adapter", "syntax.py:adapter", "nothing.py:adapter", "raises.py", "exits.py:adapter"),
)
_FILES = {
    "null.json": "null",
    "empty.json": "",
    "list.json": "[1, 2]",
    "deep.json": "[" * 100_000,
    "number.json": "1e999",
    "text.json": '"x"',
    "broken.json": '{"schema": ',
    "raises.py": "raise RuntimeError('no')\n",
    "syntax.py": "def (:\n",
    "nothing.py": "",
    "exits.py": "import sys\n\nsys.exit(0)\n",
}


@dataclass(frozen=True)
class Outcome:
    """words: the command line. status: its exit status; None if it did not end. problem: empty if the end was
    correct.
    """

    words: tuple[str, ...]
    status: int | None
    problem: str


def lines(seed: int, number: int) -> Iterator[tuple[str, ...]]:
    """Command lines without `ddpcheck`."""
    drawn = random.Random(seed)
    for _ in range(number):
        yield _line(drawn)


def _line(drawn: random.Random) -> tuple[str, ...]:
    name = drawn.choice([command for command in COMMANDS if command != "tour"])
    command = main.get_command(click.Context(main), name)
    assert command is not None
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    words = [name]
    for option in drawn.sample(options, min(len(options), drawn.randint(0, 3))):
        words.append(drawn.choice(option.opts))
        if not option.is_flag:
            words += [drawn.choice(_WORDS) for _ in range(option.nargs)]
    words += [drawn.choice(_WORDS) for _ in range(drawn.choice((0, 1, 1, 2)))]
    return tuple(words)


def prepare(folder: Path) -> None:
    """Create the files that the command lines name."""
    for name, text in _FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "bytes.json").write_bytes(bytes(range(256)))
    (folder / "folder").mkdir()


def outcome(words: tuple[str, ...], folder: Path) -> Outcome:
    """Run a command line in a prepared folder."""
    command = [sys.executable, "-m", "ddpcheck", *words]
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said) as running,
    ):
        status, asked = _ended(running)
        said.seek(0)
        text = said.read().decode(errors="replace")
    if status is None:
        return Outcome(words, None, f"still runs {SECONDS_TO_END} s after SIGTERM")
    if "Traceback (most recent call last)" in text and words[0] != "audit":  # the script's own traceback
        return Outcome(words, status, text[text.index("Traceback") :][-600:])
    if asked:
        return Outcome(words, status, "" if status in _OF_SIGTERM else f"status {status} after SIGTERM")
    if status not in DOCUMENTED:
        return Outcome(words, status, f"status {status}: {text[-300:]}")
    if status == 2 and not any(sentence in text for sentence in _SENTENCES):
        return Outcome(words, status, f"a usage error without a sentence: {text[-300:]}")
    return Outcome(words, status, "")


def _ended(running: subprocess.Popen[bytes]) -> tuple[int | None, bool]:
    """The exit status, and whether SIGTERM was sent."""
    with suppress(subprocess.TimeoutExpired):
        return running.wait(SECONDS), False
    running.terminate()
    with suppress(subprocess.TimeoutExpired):
        return running.wait(SECONDS_TO_END), True
    running.kill()
    return None, True


@click.command()
@click.option("--lines", "number", type=int, default=500, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def campaign(number: int, seed: int) -> None:
    """Run random command lines; print those with problems, and a count of exit statuses."""
    counts: Counter[str] = Counter()
    for words in lines(seed, number):
        with tempfile.TemporaryDirectory() as folder:
            prepare(Path(folder))
            found = outcome(words, Path(folder))
        if found.status in (0, 1, 3):
            click.echo(f"{found.status} {json.dumps(words)}")
        counts["bad" if found.problem else f"status {found.status}"] += 1
        if found.problem:
            click.echo(f"{json.dumps(words)}\n    {found.problem}")
    click.echo(", ".join(f"{count} x {what}" for what, count in counts.most_common()))
    sys.exit(os.EX_OK if not counts["bad"] else 1)


if __name__ == "__main__":
    campaign()
