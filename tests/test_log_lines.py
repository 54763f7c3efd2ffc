"""Progress lines of a log: a long step is no silence."""

from __future__ import annotations

import io
import re
import threading

from rich.console import Console

from ddpcheck.cli.log_lines import LogLines


class Counted(io.StringIO):
    """A text whose lines another thread can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = threading.Semaphore(0)

    def write(self, text: str) -> int:
        length = super().write(text)
        for _ in range(text.count("\n")):
            self.lines.release()
        return length


def test_the_last_line_is_repeated_while_nothing_else_is_told() -> None:
    shown = Counted()
    with LogLines(Console(file=shown), seconds_between=0.01) as lines:
        lines.tell(lambda seconds: f"{seconds:.3f} s; now a long step")
        for _ in range(3):
            assert shown.lines.acquire(timeout=60)
    end = shown.getvalue()
    seconds = [float(each) for each in re.findall(r"^([\d.]+) s; now a long step$", end, re.MULTILINE)]
    assert len(seconds) >= 3
    assert seconds == sorted(seconds)
    assert shown.getvalue() == end


def test_the_first_line_can_wait() -> None:
    shown = io.StringIO()
    lines = LogLines(Console(file=shown), seconds_between=3600, at_once=False)
    lines.tell(lambda seconds: "now a short step")
    assert not shown.getvalue()
    lines.next_at_once()
    lines.tell(lambda seconds: "now the next stage")
    assert shown.getvalue() == "now the next stage\n"


def test_the_next_stage_does_not_repeat_the_line_of_the_last() -> None:
    shown = io.StringIO()
    lines = LogLines(Console(file=shown), seconds_between=3600)
    lines.tell(lambda seconds: "now a step of the first stage")
    lines.next_at_once()
    lines._print_if_due()
    assert shown.getvalue() == "now a step of the first stage\n"
