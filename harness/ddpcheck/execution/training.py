"""Runs a whole training run by an implementation's own loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import job as ops
from ..contract.trainer import TrainingRun, TrainingTask
from ..scratch_folder import make_private
from .rank_state import RankState, Values
from .result_validation import ContractViolation, checked_indices, checked_number, offered
from .watched_files import watched


def train(rank_state: RankState, op: ops.Train) -> Values:
    task = _task(rank_state, op)
    run = offered(rank_state.facets.train, "train")
    given = {"inputs": task.inputs, "targets": task.targets, **task.initial}
    before = {name: array.tobytes() for name, array in given.items()}
    if task.folder is None:
        values = _told(rank_state, op, run(task))
    else:
        with watched(task.folder, slow=op.slow_disk and rank_state.rank == 0) as written:
            made = run(task)
        values = _told(rank_state, op, made) | {"written": written}
    return values | {"arguments_changed": [name for name, array in given.items() if array.tobytes() != before[name]]}


def _task(rank_state: RankState, op: ops.Train) -> TrainingTask:
    job = rank_state.job
    assert job.model is not None
    assert job.data is not None
    earlier = [other for other in job.operations[: rank_state.position] if isinstance(other, ops.Train)]
    goes_on = op.resume and any(other.folder == op.folder for other in earlier)
    initial = job.initial_of_resumed(rank_state.rank) if goes_on else job.initial(rank_state.rank)
    return TrainingTask(
        job.model, initial, job.optimizer, *job.data.arrays(job.model),
        op.epochs, op.batch_size, op.shuffle, op.seed, op.max_norm,
        op.micro_batches, op.schedule, op.keep_best, _folder(rank_state, op), op.resume, op.stop_after, op.patience,
    )  # fmt: skip


def _folder(rank_state: RankState, op: ops.Train) -> str | None:
    if op.folder is None:
        return None
    if rank_state.scratch is None:
        raise RuntimeError("this Job needs a folder for its files: pass scratch to Execution")
    make_private(Path(rank_state.scratch))
    name = f"{op.folder}-of-rank-{rank_state.rank}" if op.rank_0_only and rank_state.rank else op.folder
    return str(Path(rank_state.scratch, name))


def _told(rank_state: RankState, op: ops.Train, run: Any) -> Values:
    """The report of a run."""
    if not isinstance(run, TrainingRun):
        raise ContractViolation(f"train() must return a ddpcheck.TrainingRun, got {type(run).__name__}")
    epochs = op.stop_after or op.epochs
    told = (len(run.losses), len(run.indices))
    if told[0] != told[1] or told[0] > epochs or (told[0] != epochs and not (op.resume or op.patience)):
        early = ": only a run with patience may end early" * (told[0] == told[1] < epochs)
        raise ContractViolation(
            f"train() returned {told[0]} losses and {told[1]} lists of indices for {epochs} epochs{early}"
        )
    if op.keep_best and run.best is None:
        raise ContractViolation("train() returned no best weights, though the task has keep_best")
    assert rank_state.job.data is not None
    samples, declared = rank_state.job.data.samples, rank_state.held.declared
    names = declared.parameters
    best, rates = run.best, run.learning_rates
    return {
        "parameters": declared.copied(run.parameters, "train().parameters", names),
        "losses": [checked_number(loss, "train().losses") for loss in run.losses],
        "indices": [checked_indices(epoch, samples, "train()") for epoch in run.indices],
        "best": None if best is None else declared.copied(best, "train().best", names),
        "learning_rates": (
            None if rates is None else [checked_number(rate, "train().learning_rates") for rate in rates]
        ),
    }
