"""One rank of a training run, from the command line to the exit status: 0 equal to one process, 1 different, 2 usage
error.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import click

from ..contract import ReplicaMethod
from ..contract.adapter import Adapter, Facets
from ..contract.rank_context import RankContext, rank_context
from ..contract.validation import causes_of_facets, problems_of_facets
from ..counted_nouns import counted, ranks_named
from ..launchers.process_handles import DRIVER, end_with_parent
from ..running.adapter_lookup import UnusableAdapter, how_to_install, missing_modules, resolve
from . import datasets
from .comparison import Comparison, compare, compare_first_steps
from .datasets import DataError, DataSet
from .display import Display
from .loop import NoObserver, Trained, Training
from .one_process import OneProcess
from .options import plan_of, plan_options
from .plan import TrainingPlan, UnusablePlan
from .rank_messages import RankExchange, TrainingFailed
from .shown_errors import shown_error
from .shown_output import limited_output

DONE, FAILED, ASKED_WRONGLY = 0, 1, 2


def check_request(adapter: Adapter, plan: TrainingPlan, world_size: int) -> None:
    """UnusablePlan with all problems that are known before any rank is started."""
    missing = missing_modules(adapter)
    if missing:
        raise UnusablePlan(f"{adapter.name} needs {', '.join(missing)}, not installed here; {how_to_install(missing)}")
    problems = plan.unmet(adapter.capabilities, world_size, adapter.named_models)
    if problems:
        raise UnusablePlan(f"{adapter.name} cannot train this: " + "; ".join(problems))


def train(adapter: Adapter, plan: TrainingPlan, context: RankContext) -> int:
    """Train on this rank and, on rank 0, compare and print. Returns the exit status, the same on all ranks.

    The caller shows errors.
    """
    check_request(adapter, plan, context.world_size)
    facets = adapter.connect(context)
    problems = problems_of_facets(facets, adapter.capabilities, context)
    problems += [cause.headline for cause in causes_of_facets(facets, context)]
    if problems:
        raise TrainingFailed(f"{adapter.name} does not keep the contract: " + "; ".join(problems))
    data = _load(plan, facets)
    display = Display(plan.epochs)
    if context.rank == 0:
        display.say(
            f"{adapter.name}, {counted(context.world_size, 'rank')}: "
            f"{_title(plan, data)} on {data.name}, {len(data.train)} training and {len(data.test)} test samples"
        )
        display.say(plan.in_words(context.world_size))
    watcher = display if context.rank == 0 else NoObserver()
    trained = Training(plan, adapter.capabilities, facets, data, watcher).run()
    early = _first_steps(adapter, plan, facets, data, trained, display if context.rank == 0 else None)
    status = _ranks(facets).from_rank_zero(lambda: _judge(plan, data, trained, early, display, context.world_size))
    if facets.close is not None:
        facets.close()
    return status


def _ranks(facets: Facets) -> RankExchange:
    assert facets.aggregate_metrics is not None
    return RankExchange(facets.rank, facets.world_size, facets.aggregate_metrics)


def _load(plan: TrainingPlan, facets: Facets) -> DataSet:
    with _ranks(facets).together("loading the data"):
        return datasets.load(plan.data, Path(plan.data_dir) if plan.data_dir else None, plan.dtype)


def _title(plan: TrainingPlan, data: DataSet) -> str:
    model = plan.model_for(data)
    if isinstance(model, str):
        return model
    weights = [tensor.shape for tensor in model.tensors() if len(tensor.shape) == 2]
    return "mlp " + "-".join(map(str, [weights[0][1], *(shape[0] for shape in weights)]))


def _first_steps(
    adapter: Adapter, plan: TrainingPlan, facets: Facets, data: DataSet, trained: Trained, display: Display | None
) -> Comparison | None:
    """The first steps compared with those of one process, if the model is not declared and so the oracle cannot compute
    it. On all ranks.
    """
    alone = adapter.capabilities.has(ReplicaMethod.NO_SYNC) or facets.world_size == 1
    if trained.first is None or not trained.has_statistics or not alone:
        return None
    with display.busy("training again in one process, for comparison") if display is not None else nullcontext():
        found = compare_first_steps(OneProcess(plan, adapter.capabilities, facets, data, trained.first))
    return found if found.moved else None


def _judge(
    plan: TrainingPlan,
    data: DataSet,
    trained: Trained,
    early: Comparison | None,
    display: Display,
    world_size: int,
) -> int:
    if trained.differing:
        display.say(
            f"DIFFERENT REPLICAS: the parameters on {ranks_named(trained.differing)} are not those of rank 0",
            "bold red",
        )
    elif world_size > 1:
        display.say(f"the replicas of all {world_size} ranks are equal to the last bit", "green")
    equal = not trained.differing
    if early is not None:
        display.say(
            f"in the first steps, where one process normalises each rank's part apart, {early.in_words()}",
            {"equal": "green", "different": "bold red", "unknown": "yellow"}[early.verdict],
        )
        equal = equal and early.verdict != "different"
    elif plan.compare and isinstance(trained.model, str):
        display.say(
            f"not compared with a single process: {_why_not(trained)}; only the equality of replicas was checked"
        )
    elif plan.compare and not isinstance(trained.model, str):
        with display.busy("training again in one process, for comparison"):
            found = compare(plan, trained.model, data, trained.orders, trained.parameters)
        display.say(found.in_words(), "green" if found.verdict == "equal" else "bold red")
        equal = equal and found.verdict == "equal"
    return DONE if equal else FAILED


def _why_not(trained: Trained) -> str:
    if trained.has_statistics:
        return f"one process must normalise each rank's part of {trained.model} separately, which needs no_sync()"
    return f"the oracle has no model named {trained.model}"


def explain(error: Exception) -> tuple[int, str]:
    """The exit status for an error, and its text: a sentence, or the implementation's traceback."""
    if isinstance(error, (UnusableAdapter, UnusablePlan)):
        return ASKED_WRONGLY, str(error)
    if isinstance(error, click.ClickException):
        return ASKED_WRONGLY, error.format_message()
    if isinstance(error, (TrainingFailed, DataError)):
        return FAILED, str(error)
    frames = traceback.extract_tb(error.__traceback__)
    inner = next((i for i, frame in enumerate(frames) if frame.name == train.__name__), -1) + 1
    own = str(Path(__file__).resolve().parents[1])
    first = next((i for i, frame in enumerate(frames) if i >= inner and not frame.filename.startswith(own)), inner)
    text = traceback.format_list(frames[first:]) + traceback.format_exception_only(error)
    return FAILED, "".join(text).rstrip()


@click.command()
@click.argument("adapter")
@plan_options
def program(adapter: str, **values: Any) -> int:
    """Train with ADAPTER on this rank, alone or as one of many under any launcher.

    ADAPTER is the name of an installed adapter, module:attribute, or path/to/file.py:attribute. Without a launcher this
    is a world of one rank. With mpirun, torchrun or srun, or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set in a
    terminal for each rank, it is one of them.
    """
    plan = plan_of(values)
    try:
        context = rank_context()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return train(resolve(adapter)[0], plan, context)


def main() -> NoReturn:
    if driver := os.environ.pop(DRIVER, ""):
        end_with_parent(int(driver))
    rank = _rank()
    try:
        with limited_output(rank):
            status = int(program.main(prog_name="python -m ddpcheck.training", standalone_mode=False) or DONE)
    except click.Abort:
        status = FAILED
    except Exception as error:
        status, text = explain(error)
        if status != ASKED_WRONGLY or rank in (None, 0):  # a usage error is the same on all ranks
            text = shown_error(text, rank)
            print(text if rank is None else f"rank {rank}: {text}", file=sys.stderr)
    # threads and exit handlers of an implementation must not crash a finished rank at exit
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _rank() -> int | None:
    """This rank; None if there is only one, or if the environment does not name it."""
    try:
        context = rank_context()
    except ValueError:
        return None
    return context.rank if context.world_size > 1 else None
