"""Training runs with wrong content in checkpoints, or with checkpoints written or read by wrong ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ddpcheck.seeded_values import Array

from ...data_parallel.checkpoint import NAME, Checkpoint, pack, read, share, unpack
from ...data_parallel.trainer import Trainer
from ..engine.circumstances import always, on_rank
from ..engine.fault import Fault, table
from ..engine.trainers import progressed, result
from ..trainers import PROMISED, trainer

RESUMED = "check_resumed_training_run_matches_one_process"
EXACT = "check_resumed_training_run_is_bitwise_identical"
RANK_0 = "check_rank_0_checkpoint_decides_where_all_ranks_resume"
WRITERS = "check_checkpoint_files_have_one_writer"
FOLDER = "check_checkpoints_tolerate_a_slow_disk_on_rank_0"
BEST = "check_best_weights_have_the_lowest_global_loss"


def _as_text(run: Trainer, made: Checkpoint) -> Checkpoint:
    return replace(made, state={name: _in_decimal(array) for name, array in made.state.items()})


def _in_decimal(array: Array) -> Array:
    return np.array([float(f"{value:.16g}") for value in array.ravel()], array.dtype).reshape(array.shape)


# fmt: off
table(
    globals(),
    Fault("opt-hyperparams-not-broadcast", "After a resume, ranks other than 0 restart the learning rate schedule.",
          where=~on_rank(0), caught_by=RESUMED, cause="schedule-restarts",
          effect=progressed("resume", step=0),
          seen_in=("horovod/horovod#526", "horovod/horovod#562")),
    Fault("schedule-begins-anew", "A resumed run restarts the learning rate schedule.",
          where=always, caught_by=RESUMED, cause="schedule-restarts",
          effect=progressed("resume", step=0)),
    Fault("best-forgotten-on-resume", "A resumed run forgets the best loss and weights.",
          where=always, caught_by=RESUMED, cause="best-forgotten-on-resume",
          effect=progressed("resume", lowest=float("inf"), best={})),
    Fault("state-as-text", "Checkpoints hold decimal numbers with one digit too few.",
          where=always, caught_by=EXACT, cause="last-bits-wrong",
          effect=result("checkpoint", _as_text)),
)
# fmt: on


class WithFolder(Trainer):
    """Has the checkpoint folder as a Path."""

    @property
    def folder(self) -> Path:
        assert self.task.folder is not None
        return Path(self.task.folder)


@trainer(
    "load-on-rank0-only",
    RESUMED,
    RANK_0,
    seen_in=("horovod/horovod#1774", "facebookresearch/ParlAI#1846"),
    cause="resume-loads-schedule-only",
)
class LoadOnRank0Only(WithFolder):
    """Only rank 0 loads the checkpoint; the others restore the progress alone."""

    def resume(self) -> None:
        found = share(self.engine.collectives, read(self.folder) if self.engine.rank == 0 else None)
        if found is not None:
            self.progress = found
            if self.engine.rank == 0:
                self.replica.load_state(found.state)


@trainer("schedule-length-from-the-checkpoint", RESUMED, cause="schedule-of-shorter-run")
class LengthFromCheckpoint(WithFolder):
    """A run that is continued for more epochs keeps the schedule's length of the run that wrote the checkpoint."""

    length_of_first = 0

    @property
    def steps(self) -> int:
        return self.length_of_first or super().steps

    def save(self) -> None:
        super().save()
        if self.engine.rank == 0:
            (self.folder / "steps.txt").write_text(str(self.steps))

    def resume(self) -> None:
        super().resume()
        file = self.folder / "steps.txt"
        found = int(file.read_text()) if self.engine.rank == 0 and file.exists() else 0
        self.length_of_first = int(self.engine.collectives.broadcast(np.array(found)))


@trainer("reads-before-it-is-written", FOLDER, seen_in=("LLM360/Reasoning360#88",))
class ReadsTooSoon(WithFolder):
    """Ranks read the best weights from a file that rank 0 may still be writing."""

    def best(self) -> Mapping[str, Array] | None:
        found = read(self.folder) if self.task.folder is not None and self.task.keep_best else None
        return super().best() if found is None else found.best


@trainer(
    "load-branch-per-rank",
    RANK_0,
    seen_in=("KempnerInstitute/KempnerForge#49", "InternLM/xtuner#1852"),
    cause="ranks-decide-resume",
)
class LoadBranchPerRank(WithFolder):
    """Each rank looks for the checkpoint itself and loads only if it sees one."""

    def resume(self) -> None:
        found = read(self.folder)
        if found is not None:
            self.progress = share(self.engine.collectives, found) or found
            self.replica.load_state(self.progress.state)


@trainer("every-rank-writes-same-file", WRITERS, seen_in=("NVIDIA/apex#886",), cause="every-rank-saves")
class EveryRankWrites(WithFolder):
    """Every rank writes the same checkpoint file."""

    def save(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / NAME).write_bytes(pack(self.checkpoint()))


@trainer(
    "mkdir-race", FOLDER, seen_in=("karpathy/nanochat#336", "LLM360/Reasoning360#88"), cause="nobody-waits-for-rank-0"
)
class FolderMadeByRank0(WithFolder):
    """The other ranks write files to the checkpoint folder before rank 0 has created it."""

    def save(self) -> None:
        super().save()
        if self.engine.rank:
            (self.folder / f"rank-{self.engine.rank}.log").write_text(f"epoch {self.progress.epoch}")


@trainer(
    "top-k-by-local-metric",
    BEST,
    seen_in=("Lightning-AI/pytorch-lightning#4323",),
    cause="best-by-each-rank",
)
class BestByLocalLoss(Trainer):
    """Each rank keeps the weights of the epoch with its own lowest loss."""

    own = 0.0

    def mean(self, total: float, samples: int) -> float:
        self.own = total / max(1, samples)
        return super().mean(total, samples)

    def keep_best(self, loss: float) -> None:
        super().keep_best(self.own)


# ------------------------------------------------------------------------------------------------- correct, but unusual


@trainer(
    "a-file-for-each-rank",
    trainer_features=PROMISED.trainer.trainer_features - {"checkpoint_on_rank_0"},
)
class FileForEachRank(WithFolder):
    """Correct on shared storage: every rank writes and reads its own file, under a common lock."""

    @property
    def file(self) -> Path:
        return self.folder / f"{self.engine.rank}-{NAME}"

    def save(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "lock").touch()
        self.file.write_bytes(pack(self.checkpoint()))

    def resume(self) -> None:
        if self.file.exists():
            self.progress = unpack(self.file.read_bytes())
            self.replica.load_state(self.progress.state)
