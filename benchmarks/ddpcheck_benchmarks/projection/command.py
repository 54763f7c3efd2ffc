"""`ddpcheck project`: predicted times of larger worlds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ddpcheck.cli.console import console
from ddpcheck.cli.number_options import FiniteNumber
from ddpcheck.cli.options import FILE, usage_errors
from ddpcheck.running.unknown_names import require_known
from ddpcheck.storage.environment import Environment
from ddpcheck.storage.files import write_atomically

from ..machine import command_line
from ..sizes import size as size_of
from . import wording
from .caveats import assumptions, caveats
from .formulas import FORMULAS, Link
from .measurements import Benchmarks, ModelSteps, load
from .projecting import Fit, Projection, Question, fitted, on_link_alone, projected, shortened
from .quantities import parse_link, parse_ranks, parse_seconds
from .simulation.comparison import Comparison, against_measured, agreement, departures
from .simulation.runner import SimulationFailed
from .steps import Compute, equal_buckets
from .tables import Table, markdown, rich

SCHEMA = "ddpcheck.projection/1"
TITLE = "Projection"
_FORWARD = 1 / 3  # backward has two multiplications for each one of forward
_SIMULATED_RANKS = (2, 4, 8, 16, 32, 64)
_SIMULATED_SIZES = (1024.0, 1024.0**2, 25 * 1024.0**2)
_USUAL_LINK = "25GbE:20us"
_MODEL_BYTES = "100MB"


@click.command("project")
@click.option(
    "--from", "files", multiple=True, type=FILE, help="Measured times: a JSON file of ddpcheck bench. Repeatable."
)
@click.option(
    "--link", "link_text", metavar="RATE:LATENCY", help="The link of each host, such as 25GbE:20us or 3GB/s:5us."
)
@click.option(
    "--ranks",
    "ranks_text",
    default="8..4096",
    show_default=True,
    help="Numbers of ranks: a doubling range, or a list such as 8,16,64.",
)
@click.option(
    "--model-bytes",
    help="Bytes of gradients. A ResNet-50 has 100MB. [default: of the largest model in --from, else 100MB]",
)
@click.option(
    "--bucket-bytes", default="25MiB", show_default=True, help="Gradients are reduced in buckets of this size."
)
@click.option("--compute", help="Time of one rank's forward and backward. [default: as measured in --from, else 100ms]")
@click.option(
    "--slowed-communication",
    default=1.0,
    show_default=True,
    type=FiniteNumber(1, 1e6),
    help="The factor by which compute slows communication beside it.",
)
@click.option(
    "--slowed-compute",
    default=1.0,
    show_default=True,
    type=FiniteNumber(1, 1e6),
    help="The factor by which communication slows compute beside it.",
)
@click.option("--algorithm", help="The all-reduce algorithm. [default: the best predictor of held-out times]")
@click.option("--simulate", is_flag=True, help="Also simulate messages with SimGrid, up to 64 ranks, and compare.")
@click.option("--json", "json_file", type=FILE, help="Write all tables as JSON.")
@click.option("--markdown", "markdown_file", type=FILE, help="Write the tables as markdown.")
def command(
    files: tuple[Path, ...],
    link_text: str | None,
    ranks_text: str,
    model_bytes: str | None,
    bucket_bytes: str,
    compute: str | None,
    slowed_communication: float,
    slowed_compute: float,
    algorithm: str | None,
    simulate: bool,
    json_file: Path | None,
    markdown_file: Path | None,
) -> None:
    """Project all-reduce and step times to more ranks than this machine has, with the model's errors beside every
    number.

    Projects from measured times (--from), from the link of the planned cluster (--link), or from both.
    """
    out = console()
    with usage_errors():
        if not files and link_text is None:
            raise ValueError(f"nothing to project from: give --from FILE, --link {_USUAL_LINK}, or both")
        link = parse_link(link_text) if link_text else None
        ranks = parse_ranks(ranks_text)
        given = size_of(model_bytes) if model_bytes else None
        bucket_size = size_of(bucket_bytes)
        seconds = parse_seconds(compute) if compute else None
        if seconds == 0:
            raise ValueError("--compute should be more than 0, for example 100ms")
        if algorithm is not None:
            require_known(algorithm, FORMULAS["all_reduce"], "algorithm")
        benchmarks = load(files) if files else Benchmarks(())
        steps = benchmarks.one_rank_steps
        size = given or (steps.bytes if steps is not None else size_of(_MODEL_BYTES))
        buckets = equal_buckets(size, bucket_size)
    fits, left_out = _fits(out, benchmarks, algorithm)
    questions = {
        name: Question(ranks, link, size, buckets, _compute(seconds, samples), slowed_communication, slowed_compute)
        for name, samples in {"": (), **(steps.seconds if steps is not None else {})}.items()
    }
    plain = questions[""]
    reducing = [found for found in fits if found.series.collective == "all_reduce"]
    asked = next((questions[each.series.adapter] for each in reducing if each.series.adapter in questions), plain)
    projections = [
        projection for found in reducing for projection in projected(found, questions.get(found.series.adapter, plain))
    ]
    if link is not None:
        projections += on_link_alone(asked, link)
    tables = [table for found in fits for table in wording.fit_tables(found)]
    if projections:
        told = shortened(projections)
        tables += [wording.all_reduce_table(told, plain), wording.step_table(told, plain)]
        tables.insert(0, wording.answer_table(told, plain))
    simulated: list[Comparison] = []
    if simulate:
        simulated_tables, simulated = _simulated(out, link, size, reducing)
        tables += simulated_tables
    lists = (
        [
            ("Assumptions", [*_model(steps, seconds, given), *assumptions(asked, reducing)]),
            ("Caveats", caveats(asked, reducing)),
        ]
        if projections
        else []
    )
    _print(out, tables, [*lists, *([("Left out", left_out)] if left_out else [])])
    if json_file is not None:
        text = json.dumps(_record(asked, fits, projections, simulated, lists), indent=1, allow_nan=False)
        write_atomically(json_file, text + "\n")
    if markdown_file is not None:
        write_atomically(markdown_file, markdown(TITLE, tables, lists))


def _fits(out: Console, benchmarks: Benchmarks, algorithm: str | None) -> tuple[list[Fit], list[str]]:
    """A fit of each series that has enough points, and the series left out. algorithm: of all-reduce, if known."""
    fits, left_out = [], []
    with out.status("") as status:
        for series in benchmarks.series:
            if series.collective not in FORMULAS:
                left_out.append(f"{series.title}: there is no formula for it")
            elif len(series.points()) < 2:
                left_out.append(f"{series.title}: measured at one size and world size")
            else:
                status.update(f"fitting {series.title}")
                fits.append(fitted(series, algorithm if series.collective == "all_reduce" else None))
    measured = {series.adapter for series in benchmarks.series}
    left_out += [f"{name}: no collective was measured" for name in sorted(benchmarks.adapters - measured)]
    return fits, left_out


def _model(steps: ModelSteps | None, seconds: float | None, given: int | None) -> Iterator[str]:
    """The model whose measured steps are used."""
    if steps is None:
        return
    used = {"compute": seconds is None, "gradients": given is None}
    measured = " and ".join(name for name, own in used.items() if own)
    if measured:
        yield f"{measured.capitalize()} are those of the model {steps.model}, the largest that one rank was measured with."


def _print(out: Console, tables: Sequence[Table], lists: Sequence[tuple[str, Sequence[str]]]) -> None:
    for table in tables:
        out.print(f"[bold]{table.title}[/]", soft_wrap=True)
        out.print(rich(table))
        for note in table.notes:
            out.print(note, style="dim", markup=False)
        out.print()
    for heading, lines in lists:
        out.print(f"[bold]{heading}[/]")
        for line in lines:
            out.print(f"- {line}", markup=False)


def _compute(seconds: float | None, samples: tuple[float, ...]) -> Compute:
    """The given seconds, with the relative spread of measured steps; else the measured steps; else the 100 ms of a
    ResNet-50.
    """
    mean = sum(samples) / len(samples) if samples else 0.1
    total = seconds if seconds is not None else mean
    scaled = tuple(sample * total / mean for sample in samples)
    return Compute(_FORWARD * total, (1 - _FORWARD) * total, 0.0, scaled)


def _simulated(
    out: Console, link: Link | None, size: float, fits: Sequence[Fit]
) -> tuple[list[Table], list[Comparison]]:
    chosen = link or parse_link(_USUAL_LINK)
    try:
        with out.status("simulating"):
            agreeing = list(agreement(chosen, _SIMULATED_RANKS, _SIMULATED_SIZES))
            departing = list(departures(chosen, size))
            measured = [(found, list(against_measured(found.model, found.series.points()))) for found in fits]
    except SimulationFailed as error:
        raise click.ClickException(f"{error}; or leave out --simulate") from error
    tables = [wording.agreement_table(agreeing), wording.departure_table(departing)]
    tables += [wording.measured_table(found, compared) for found, compared in measured if compared]
    return tables, [*agreeing, *departing, *(each for _, compared in measured for _, each in compared)]


def _record(
    question: Question,
    fits: Sequence[Fit],
    projections: Sequence[Projection],
    compared: Sequence[Comparison],
    lists: Sequence[tuple[str, Sequence[str]]],
) -> dict[str, Any]:
    record = {
        "schema": SCHEMA,
        "command": command_line(),
        "environment": asdict(Environment.here()),
        "question": asdict(question),
        "fits": [
            {
                "adapter": found.series.adapter,
                "collective": found.series.collective,
                "in_place": found.series.in_place,
                "world_sizes": found.series.world_sizes,
                "bytes": found.series.sizes,
                "launches": found.series.launches,
                "segments": [
                    {**asdict(segment), "held_out_errors": errors}
                    for segment, errors in zip(found.model.segments, found.errors, strict=True)
                ],
                "scenarios": [
                    {**asdict(each), "median": each.median, "worst": each.worst, "bias": each.bias}
                    for each in found.scenarios
                ],
            }
            for found in fits
        ],
        "projections": [asdict(each) for each in projections],
        "simulated": [{**asdict(each), "difference": each.difference} for each in compared],
        **{heading.lower(): lines for heading, lines in lists},
    }
    cleaned: dict[str, Any] = _finite(record)
    return cleaned


def _finite(value: Any) -> Any:
    """The value for JSON, with null for infinity, the end of the last segment."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
