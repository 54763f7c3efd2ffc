"""A plan as options of a command line, and back: one list for the command and for the program on every rank."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from .plan import TrainingPlan, UnusablePlan

F = TypeVar("F", bound=Callable[..., Any])

_DEFAULT = TrainingPlan()


def _option(name: str, sentence: str, **settings: Any) -> Callable[[F], F]:
    field = name.removeprefix("--").replace("-", "_")
    settings.setdefault("default", getattr(_DEFAULT, field))
    settings.setdefault("show_default", settings["default"] not in (None, False))
    return click.option(name, field, help=sentence, **settings)


_OPTIONS = (
    _option("--data", "The data set.", type=click.Choice(["digits", "mnist"])),
    _option("--data-dir", "Folder of MNIST's four files, gzipped or not.", metavar="DIR"),
    _option("--model", "mlp, sizes such as 64-128-64-10, or the name of a model that the implementation builds."),
    _option("--activation", "The activation between the layers of an mlp.", type=click.Choice(["tanh", "relu"])),
    _option("--epochs", "Number of passes over the training samples.", type=int),
    _option("--batch-size", "Number of samples in a micro-batch on one rank.", type=int),
    _option("--lr", "Learning rate.", type=float),
    _option("--momentum", "Momentum of SGD.", type=float),
    _option("--optimizer", "The optimizer.", type=click.Choice(["sgd", "adam"])),
    _option("--accumulation", "Micro-batches per step; only the last one communicates.", type=int),
    _option("--clip", "Clip gradients to this global norm.", type=float),
    _option("--scale-lr", "Multiply the learning rate by the world size.", is_flag=True),
    _option(
        "--warmup-epochs",
        "Number of epochs in which the learning rate rises in equal steps to its final value.",
        type=int,
    ),
    _option("--seed", "The seed of initial values and of the order of samples.", type=int),
    _option("--dtype", "The dtype in which the ranks compute.", type=click.Choice(["float32", "float64"])),
    _option("--checkpoint", "The file to which rank 0 saves after each epoch.", metavar="FILE"),
    _option("--resume", "Resume from the checkpoint.", is_flag=True),
    _option("--stop-after", "Stop after this many epochs, as if interrupted.", type=int),
    click.option(
        "--compare/--no-compare",
        default=True,
        show_default=True,
        help="Repeat the training in one process, in float64, and compare.",
    ),
    click.option(
        "--option", "options", multiple=True, metavar="NAME=VALUE", help="A setting of the implementation (repeatable)."
    ),
)


def plan_options(command: F) -> F:
    """Give a click command the options of a plan."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def plan_of(values: dict[str, Any]) -> TrainingPlan:
    """The plan of these options. click.UsageError if they make no valid plan."""
    options = tuple(_setting(text) for text in values["options"])
    try:
        return TrainingPlan(**{**values, "options": options})
    except UnusablePlan as error:
        raise click.UsageError(str(error)) from None


def arguments_of(plan: TrainingPlan) -> list[str]:
    """The options of this plan, without defaults."""
    made: list[str] = []
    for field in dataclasses.fields(plan):
        value = getattr(plan, field.name)
        name = f"--{field.name.replace('_', '-')}"
        if field.name == "options":
            made += [f"--option={key}={json.dumps(setting)}" for key, setting in value]
        elif value == field.default:
            continue
        elif isinstance(value, bool):
            made.append(name if value else name.replace("--", "--no-", 1))
        else:
            made.append(f"{name}={value}")
    return made


def _setting(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(f"--option {text} is not NAME=VALUE, such as --option bucket_cap_mb=1")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
