"""The table of a run, from hand-made verdicts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rich.console import Console

from ddpcheck.cli.verdict_table import show_table
from ddpcheck.verdict import Status, Verdict


def verdicts(family: str, number: int, status: Status = "passed", *, adapter: str = "mine") -> Iterator[Verdict]:
    """`number` checks at one and two ranks. At one rank the first is skipped; at two, the last has this status."""
    for size in (1, 2):
        for place in range(number):
            skipped = size == 1 and not place
            found: Status = "skipped" if skipped else status if place == number - 1 and size == 2 else "passed"
            yield Verdict(adapter, size, f"check_{family}_{place}", family, found)


def lines(*shown: Verdict, every: bool = False, width: int = 80) -> list[str]:
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        show_table(console, shown, every=every)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_family_that_passed_has_one_row_and_a_note() -> None:
    assert lines(*verdicts("samplers", 5)) == [
        "                    mine",
        "check \\ ranks       1 2",
        "samplers, 5 checks  ✓ ✓",
        "✓ passed   - skipped",
        "A family has one row if none of its checks failed. --verbose shows all rows.",
    ]


def test_few_checks_have_a_row_each() -> None:
    shown = lines(*verdicts("samplers", 2))
    assert [line.split()[0] for line in shown[2:5]] == ["samplers", "check_samplers_0", "check_samplers_1"]
    assert "--verbose" not in "\n".join(shown)


@pytest.mark.parametrize("status", ["failed", "hung", "unknown", "expected_failure"])
def test_a_family_in_which_a_check_did_not_pass_keeps_its_rows(status: Status) -> None:
    shown = lines(*verdicts("gradients", 5, status), *verdicts("samplers", 5))
    assert sum("check_gradients_" in line for line in shown) == 5
    assert not any("check_samplers_" in line for line in shown)


def test_a_failure_of_one_adapter_keeps_the_rows_of_all() -> None:
    shown = lines(*verdicts("samplers", 5), *verdicts("samplers", 5, "failed", adapter="other"))
    assert next(line for line in shown if "check_samplers_4" in line).split()[1:] == ["✓", "✓", "✓", "✗"]


def test_verbose_has_a_row_for_every_check() -> None:
    never = Verdict("mine", 1, "check_never", "samplers", "skipped")
    shown = lines(*verdicts("samplers", 5), never, every=True)
    assert sum("check_" in line for line in shown) == 6
    assert "--verbose" not in "\n".join(shown)
    assert lines(*verdicts("samplers", 5), never)[-1] == (
        "A family has one row if none of its checks failed. "
        "1 check was skipped at every world size, and has no row. --verbose shows all rows."
    )


def test_a_world_size_at_which_a_family_was_skipped_says_so() -> None:
    alone = [Verdict("mine", 1, f"check_samplers_{place}", "samplers", "skipped") for place in range(5)]
    both = [Verdict("mine", 12, f"check_samplers_{place}", "samplers", "passed") for place in range(5)]
    assert lines(*alone, *both)[1:3] == ["check \\ ranks       1 12", "samplers, 5 checks  - ✓"]


def test_a_narrow_terminal_shows_whole_names() -> None:
    shown = [
        Verdict(adapter, 1, f"check_{'long_' * 10}name", "ranks", "passed")
        for adapter in ("numpy_sockets", "torch_ddp")
    ]
    text = lines(*shown, width=60)
    assert text[0].split() == ["numpy_sockets", "torch_ddp"]
    assert "".join(line.split()[0] for line in text[3:-1]) == f"check_{'long_' * 10}name"
