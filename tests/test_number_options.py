"""Numbers on the command line: every option has a range, and a value out of range ends with one sentence and status
2.
"""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from ddpcheck.cli import COMMANDS, main
from ddpcheck.cli.number_options import FiniteNumber, WholeNumber
from ddpcheck.training.options import arguments_of, plan_of
from ddpcheck.training.plan import TrainingPlan

NO_NUMBERS = ("1-", "-3", "3-1", "1-99999999", "1,,2", "0", "100000", "\u0661", "1.5", "")
NUMBERS = (click.types.IntParamType, click.types.FloatParamType)


def test_every_number_has_a_range() -> None:
    """Numbers of a training plan are checked by the plan."""
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for option in command.params:
            if isinstance(option.type, NUMBERS) and not hasattr(TrainingPlan, option.name or ""):
                assert isinstance(option.type, WholeNumber | FiniteNumber), (name, option.opts)


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_world_sizes_have_a_range(text: str) -> None:
    shown = CliRunner().invoke(main, ["check", "numpy_sockets", "-w", text])
    assert shown.exit_code == 2, shown.output
    assert "world sizes" in shown.output


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "0", "-1", "1e308"])
def test_a_deadline_is_a_positive_number_of_seconds(value: str) -> None:
    shown = CliRunner().invoke(main, ["check", "numpy_sockets", "--deadline", value])
    assert shown.exit_code == 2, shown.output
    assert "--deadline" in shown.output


@pytest.mark.parametrize("field", ["epochs", "batch_size", "accumulation", "warmup_epochs", "seed", "stop_after"])
@pytest.mark.parametrize("value", [-(10**25), 10**25])
def test_whole_numbers_of_a_training_plan_have_a_range(field: str, value: int) -> None:
    with pytest.raises(click.UsageError, match=f"{field} is {value}; it must be from"):
        plan_of({field: value, "options": ()})


@pytest.mark.parametrize("field", ["lr", "momentum", "clip"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e308])
def test_real_numbers_of_a_training_plan_have_a_range(field: str, value: float) -> None:
    with pytest.raises(click.UsageError, match=f"{field} is .*; it must be"):
        plan_of({field: value, "options": ()})


def test_the_largest_plan_is_one() -> None:
    largest = TrainingPlan(epochs=1_000_000, batch_size=1_000_000, seed=(1 << 63) - 1, lr=1e9)
    assert len(arguments_of(largest)) > 0
