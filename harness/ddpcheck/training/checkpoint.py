"""A file with everything that a later run needs to resume: written by rank 0, read by all ranks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..seeded_values import Array
from ..storage.archives import read_arrays
from ..storage.files import UnreadableFile, UnwritableFile, atomic_file
from .plan import TrainingPlan, UnusablePlan
from .rank_messages import TrainingFailed

_FORMAT = 1
_STATE = "state/"


@dataclass(frozen=True)
class Checkpoint:
    """A replica's state after `epoch` epochs of a plan, at a world size."""

    plan: TrainingPlan
    world_size: int
    epoch: int
    state: Mapping[str, Array]


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write the file as a whole, so that a reader always sees the old or the new one. TrainingFailed on failure."""
    about = {
        "format": _FORMAT,
        "plan": dataclasses.asdict(checkpoint.plan),
        "world_size": checkpoint.world_size,
        "epoch": checkpoint.epoch,
    }
    arrays: dict[str, Any] = {_STATE + name: array for name, array in checkpoint.state.items()}
    try:
        with atomic_file(path) as file:
            np.savez(file, about=np.array(json.dumps(about)), **arrays)
    except UnwritableFile as error:
        raise TrainingFailed(f"the checkpoint cannot be saved: {error}; choose another place") from error


def load(path: Path) -> Checkpoint:
    """Read a file of save(). TrainingFailed if there is no such file, or if it has another form."""
    try:
        arrays = read_arrays(path)
        about = json.loads(str(arrays["about"]))
        if about["format"] != _FORMAT:
            raise TrainingFailed(f"{path} has format {about['format']}, but this program reads {_FORMAT}; train again")
        plan = about["plan"] | {"options": tuple(map(tuple, about["plan"]["options"]))}
        state = {name.removeprefix(_STATE): array for name, array in arrays.items() if name.startswith(_STATE)}
        return Checkpoint(TrainingPlan(**plan), about["world_size"], about["epoch"], state)
    except FileNotFoundError:
        raise TrainingFailed(
            f"there is no checkpoint {path} on this host; train without --resume first, or share the folder between hosts"
        ) from None
    except (UnreadableFile, UnusablePlan, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TrainingFailed(f"{path} is not a checkpoint of this program ({error}); train without --resume") from None


def fitting(checkpoint: Checkpoint, plan: TrainingPlan, world_size: int) -> Checkpoint:
    """The checkpoint, if resuming from it under this plan continues the same training. TrainingFailed if not."""
    found = plan.differences(checkpoint.plan)
    if checkpoint.world_size != world_size:
        found.append(f"{world_size} ranks instead of {checkpoint.world_size}")
    if found:
        raise TrainingFailed(
            f"this run cannot continue {plan.checkpoint}, which has {', '.join(found)}; "
            "use the same options, or another --checkpoint"
        )
    return checkpoint
