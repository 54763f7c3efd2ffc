"""`ddpcheck compare steps`: training steps of several implementations: milliseconds, and ratios with their intervals.

All ranks run all the time and wait in a read between their turns. A turn is the same training without communication (if
the replica has no_sync), training with it, and an all-reduce, in place if possible, of as many elements as there are
parameters. The time of a step is that of the slowest rank, and a turn's the median of its steps. Ratios are to the last
implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import click
import numpy as np

from ddpcheck.cli.number_options import COUNT, RANKS
from ddpcheck.cli.options import usage_errors
from ddpcheck.contract import CallForm, ReplicaMethod, needs
from ddpcheck.job import MeasureCollective, MeasureSteps
from ddpcheck.running.adapter_lookup import resolve
from ddpcheck.session import Session
from ddpcheck.trace import Trace

from ..rank_times import slowest, stamps, why
from ..stats import interval
from ..step_cases import MODELS, StepCase

# torch rebuilds buckets after the first step; other implementations decide within seven whether overlap pays
_WARMUPS = 8
_PARTS = ("step", "compute", "all-reduce", "CPU")
_LEGEND = """
step, compute, all-reduce: the time of the slowest rank, the median over turns. compute: the step in no_sync().
all-reduce: of as many elements as there are parameters. CPU: of all ranks, for one step.
Ratios: the median of each turn's own ratio, with its 95 % interval (below 6 turns: the range). Noise that a turn shares
cancels, so a ratio may differ from that of the medians. An interval that holds 1.00: not told apart.
-: the adapter does not promise it (ReplicaMethod.NO_SYNC for compute, the collective for all-reduce)."""


@click.command("steps")
@click.argument("adapters", nargs=-1, required=True)
@click.option("-w", "--world-size", type=RANKS, default=2, show_default=True)
@click.option(
    "--model", type=click.Choice(list(MODELS)), default="large", show_default=True, help="The model that is trained."
)
@click.option("--turns", type=COUNT, default=7, show_default=True, help="Turns of each adapter.")
@click.option(
    "--steps", type=COUNT, default=5, show_default=True, help="Timed steps in a turn, after eight warm-up steps."
)
def command(adapters: Sequence[str], world_size: int, model: str, turns: int, steps: int) -> None:
    """Compare training steps of ADAPTERS; ratios are to the last one named.

    Prints the milliseconds of a step, of its computation, of an all-reduce of as many elements as there are parameters,
    and the CPU time of a step on all ranks.
    """
    with usage_errors():
        for adapter in adapters:
            resolve(adapter)
    cases = {adapter: StepCase(adapter, world_size, model, "weak") for adapter in adapters}
    taken: dict[str, list[list[float]]] = {adapter: [] for adapter in cases}
    with ExitStack() as opened:
        sessions = {adapter: opened.enter_context(Session(adapter, world_size, deadline=300.0)) for adapter in taken}
        for turn in range(turns):
            for adapter in list(taken) if turn % 2 else reversed(taken):
                taken[adapter].append(_turn(sessions[adapter], cases[adapter], steps))
    parameters = cases[adapters[0]].parameters
    click.echo(f"{model}, {parameters:,} parameters, world size {world_size}, {turns} turns of {steps} steps\n")
    click.echo(f"| | {' (ms) | '.join(_PARTS)} (ms) | step / (compute + all-reduce) | step / {adapters[-1]}'s |")
    click.echo("|---|" + "---:|" * (len(_PARTS) + 2))
    for adapter, turned in taken.items():
        medians = " | ".join("-" if np.isnan(value) else f"{1e3 * value:,.1f}" for value in np.median(turned, axis=0))
        apart = _ratio([step / (compute + alone) for step, compute, alone, _ in turned])
        beside = _ratio([own[0] / last[0] for own, last in zip(turned, taken[adapters[-1]], strict=True)])
        click.echo(f"| {adapter} | {medians} | {apart} | {beside} |")
    click.echo(_LEGEND)


def _turn(session: Session, case: StepCase, steps: int) -> list[float]:
    """Seconds of each of _PARTS; NaN for parts that the implementation does not offer."""
    promises = session.capabilities
    parts: list[MeasureSteps | MeasureCollective] = [case.steps(_WARMUPS, steps)]
    if promises.has(ReplicaMethod.NO_SYNC):
        parts.append(case.steps(2, steps, synced=False))
    reduces = needs.collectives.operations("all_reduce").lacking(promises, case.world_size) is None
    if reduces:
        parts.append(
            MeasureCollective("all_reduce", case.parameters, in_place=promises.has(CallForm.IN_PLACE), iterations=steps)
        )
    trace = session.run(case.job(parts))
    if not trace.completed:
        raise click.ClickException(why(trace))
    return [
        _median(trace, 0),
        _median(trace, 1) if promises.has(ReplicaMethod.NO_SYNC) else float("nan"),
        _median(trace, len(parts) - 1) if reduces else float("nan"),
        sum(trace.values(0, "cpu")) / steps,
    ]


def _median(trace: Trace, operation: int) -> float:
    return float(np.median(slowest(stamps(trace, operation, "begin"), stamps(trace, operation, "end"))))


def _ratio(ratios: Sequence[float]) -> str:
    """A dash if some are NaN."""
    if np.isnan(ratios).any():
        return "-"
    low, high = interval(ratios)
    return f"{np.median(ratios):.2f} ({low:.2f} to {high:.2f})"
