"""`ddpcheck train`: a training run on several ranks of this host, started by the adapter's launcher."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..contract.adapter import Adapter
from ..contract.rank_context import RankContext
from ..launchers.ports import reserve_port
from ..running.adapter_lookup import resolve
from ..running.guarded_import import IMPORT_SECONDS
from ..training.options import arguments_of, plan_of, plan_options
from ..training.plan import TrainingPlan, UnusablePlan
from ..training.program import check_request, explain, train
from ..training.shown_errors import shown_error
from ..training.shown_output import limited_output
from .launched_ranks import run_ranks
from .number_options import RANKS
from .options import usage_errors


@click.command("train")
@click.argument("adapter")
@click.option("-n", "--world-size", type=RANKS, default=2, show_default=True, help="Ranks to train on.")
@plan_options
def command(adapter: str, world_size: int, **values: Any) -> None:
    """Train with ADAPTER, and compare the result with that of a single process.

    ADAPTER is the name of an installed adapter (see `ddpcheck list adapters`), module:attribute, or
    path/to/file.py:attribute. The same program runs under any launcher as `python -m ddpcheck.training ADAPTER`.

    \b
    ddpcheck train numpy_sockets --world-size 4
    ddpcheck train torch_ddp --model resnet18 --data mnist --data-dir DIR --epochs 1
    ddpcheck train my_ddp.py:adapter -n 3 --accumulation 2 --clip 1 --checkpoint run.npz

    Exit status: 0 the result equals that of a single process; 1 it differs, or training failed; 2 usage error.
    """  # noqa: D301  # click wants the character, not the two that stand for it
    plan = plan_of(values)
    with usage_errors():
        found, full = resolve(adapter, IMPORT_SECONDS)
        try:
            check_request(found, plan, world_size)
        except UnusablePlan as error:
            raise click.UsageError(str(error)) from None
    if world_size == 1:
        sys.exit(_alone(found, plan))
    program = [sys.executable, "-m", "ddpcheck.training", full, *arguments_of(plan)]
    sys.exit(run_ranks(found.launcher, program, world_size, {}))


def _alone(adapter: Adapter, plan: TrainingPlan) -> int:
    """Train in this process, without a launcher."""
    port = reserve_port()
    try:
        with limited_output(None):
            return train(adapter, plan, RankContext(0, 1, 0, 1, "127.0.0.1", port.number))
    except Exception as error:
        status, text = explain(error)
        click.echo(shown_error(text, None), err=True)
        return status
    finally:
        port.release()
