"""Failures while checks run: the first in full, later ones in one line, or not at all."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from rich.console import Console

from ddpcheck.causes import Cause, gradients, operations, ranks, traffic, values
from ddpcheck.cli.shortened_stacks import shortened
from ddpcheck.cli.shown_failures import ShownFailures
from ddpcheck.running.failure_files import FailureFiles
from ddpcheck.verdict import Diagnosis, Verdict

SUMMED = values.SUMMED_NOT_AVERAGED(world_size=2)


def shown(*verdicts: Verdict, quiet: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    with tempfile.TemporaryDirectory() as folder:
        failures = ShownFailures(console, FailureFiles(Path(folder)), quiet=quiet)
        for verdict in verdicts:
            failures.show(verdict, "mine.py:adapter", None)
        failures.show_numbers_of_omitted()
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def failed(check: str, *causes: Cause, adapter: str = "mine") -> Verdict:
    return Verdict(adapter, 2, check, "gradients", "failed", diagnosis=Diagnosis("got 2, but should be 1", causes))


def test_repeated_cause_is_shortened_then_omitted() -> None:
    lines = shown(*(failed(f"check_{number}", SUMMED) for number in range(20)))
    assert sum("got 2" in line for line in lines) == 1
    assert sum(line.endswith("the same cause, summed-not-averaged") for line in lines) == 4
    assert lines[-1].endswith(
        "check_5 (gradients): the same cause, summed-not-averaged; the table shows all checks with it"
    )


def test_a_failure_whose_causes_include_one_that_is_shown_is_told_by_it() -> None:
    """At world size 2 a sum looks like a gradient that counts twice."""
    both = failed("check_b", gradients.ACCUMULATED_SURVIVES_ZERO_GRAD(), SUMMED)
    lines = shown(failed("check_a", SUMMED), both)
    assert lines[-1] == "✗ mine, 2 ranks: check_b (gradients): the same cause, summed-not-averaged"
    assert any(gradients.ACCUMULATED_SURVIVES_ZERO_GRAD().headline in line for line in shown(both))


def test_an_error_that_came_without_these_circumstances_is_told_by_itself() -> None:
    raised = ranks.RANK_RAISED(error="RuntimeError", at="wrapper.py:69")
    alone = [failed(f"check_{number}", raised) for number in range(2)]
    guessed = failed("check_c", operations.DROPPED_WINDOW_REMEMBERED(backward=1, cleared=3), raised)
    assert shown(*alone, guessed)[-1] == "✗ mine, 2 ranks: check_c (gradients): the same cause, rank-raised"
    assert any("bookkeeping" in line for line in shown(alone[0], guessed))


def test_a_cause_that_was_not_shown_in_full_is_not_called_the_same() -> None:
    first = failed("check_a", values.PARTS_OF_RANKS_MISSING())
    lines = shown(first, *(failed(f"check_later_{number}", traffic.SENT_AFTER_BACKWARD()) for number in range(3)))
    assert [line.partition("): ")[2] for line in lines[-3:]] == [
        f"may follow from a cause shown above: {values.PARTS_OF_RANKS_MISSING().headline}"
    ] * 3


def test_failures_without_cause_are_shown_then_shortened() -> None:
    lines = shown(*(failed(f"check_{number}") for number in range(10)))
    assert sum(line == "    got 2, but should be 1" for line in lines) == 8
    assert lines[-1] == "✗ mine, 2 ranks: check_9 (gradients): got 2, but should be 1"


def test_adapters_do_not_hide_each_other() -> None:
    lines = shown(failed("check_1", SUMMED), failed("check_1", SUMMED, adapter="theirs"))
    assert sum(f"likely cause: {SUMMED.headline}" in line for line in lines) == 2


def test_quiet_numbers_of_failures_add_up() -> None:
    """Each failure is shown, has a cause that is shown, or follows from one."""
    same = [failed(f"check_{number}", values.PARTS_OF_RANKS_MISSING()) for number in range(5)]
    later = [failed(f"check_later_{number}", traffic.SENT_AFTER_BACKWARD()) for number in range(3)]
    lines = shown(*same, *later, quiet=True)
    assert sum(line.startswith("✗") for line in lines) == 1
    assert lines[-2:] == [
        "4 more failures have causes shown above",
        "3 more failures may follow from causes shown above",
    ]
    assert shown(*same[:2], quiet=True)[-1] == "1 more failure has a cause shown above"
    assert "more" not in "".join(shown(same[0], quiet=True))


def test_a_long_stack_shows_where_it_left_the_own_code() -> None:
    """The innermost frames are a library's, and do not show which call waits."""
    library = (
        '  File "/usr/lib/python3.12/multiprocessing/connection.py", line 250, in recv\n    buf = self._recv_bytes()'
    )
    own = [f'  File "/home/me/ring.py", line {line}, in f\n    self.link.recv()' for line in (7, 8, 9)]
    call = '  File "/ddpcheck/execution/collectives.py", line 28, in all_reduce\n    comm.all_reduce(argument)'
    stack = "\n".join(["stack of rank 0:", call, *own, *[library] * 6])
    hung = Verdict("mine", 2, "check_a", "gradients", "hung", diagnosis=Diagnosis("rank 0 hung", details=(stack,)))
    lines = [line.strip() for line in shown(hung)]
    places = [place for place, line in enumerate(lines) if "ring.py" in line]
    assert [lines[place] for place in places] == [line.splitlines()[0].strip() for line in own[1:]]
    assert [lines[places[0] - 1], lines[places[1] + 2]] == ["... 3 lines", "... 6 lines"]


def test_a_crash_shows_where_it_left_the_own_code() -> None:
    """Python tells of a crash with the innermost frame first, of all threads, and with all modules."""
    library, own = (
        '  File "/usr/lib/python3.12/threading.py", line 7 in run',
        '  File "/home/me/ring.py", line 84 in finish',
    )
    said = [
        "terminate called",
        "Fatal Python error: Aborted",
        "",
        "Thread 0x0001 (most recent call first):",
        *[library] * 6,
        "",
        "Thread 0x0002 (most recent call first):",
        *[library] * 9,
        own,
        *[library] * 12,
        "",
        "Extension modules: numpy._core._multiarray_umath (total: 1)",
        "rank 1 was killed by SIGABRT",
    ]
    assert shortened("\n".join(said)).splitlines() == [
        *said[:2],
        "Thread 0x0002 (most recent call first):",
        library,
        "    ... 8 lines",
        own,
        "    ... 12 lines",
        said[-1],
    ]
