"""Checkpoints of a training run: one file, written and read by rank 0, which broadcasts it."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Collectives
from ddpcheck.seeded_values import Array

NAME = "checkpoint.npz"
_WORD = np.dtype(np.int64)


@dataclass(frozen=True)
class Checkpoint:
    """The progress and state of a run.

    epoch: number of epochs done. step: number of optimizer steps done, on which the learning rate depends. state: the replica's
    state(). lowest: the lowest loss of an epoch so far. best: the parameters at the end of that epoch, if they are kept.
    """

    epoch: int
    step: int
    state: Mapping[str, Array]
    lowest: float = math.inf
    best: Mapping[str, Array] = field(default_factory=dict)


def write(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a temporary file and rename it, so the checkpoint is complete at every moment: the old one or the new."""
    folder.mkdir(parents=True, exist_ok=True)
    half = folder / f"{NAME}.half"
    half.write_bytes(pack(checkpoint))
    half.replace(folder / NAME)


def read(folder: Path) -> Checkpoint | None:
    """The last checkpoint; None if there is none."""
    try:
        return unpack((folder / NAME).read_bytes())
    except FileNotFoundError:
        return None


def share(collectives: Collectives, checkpoint: Checkpoint | None) -> Checkpoint | None:
    """Rank 0's checkpoint, or its None, on every rank; the argument of the other ranks is ignored."""
    content = b"" if checkpoint is None else pack(checkpoint)
    length = int(collectives.broadcast(np.array(len(content), _WORD)))
    if not length:
        return None
    padded = content[:length].ljust(length + -length % _WORD.itemsize, b"\0")
    words = np.frombuffer(padded, _WORD)  # collectives do not change integers
    return unpack(collectives.broadcast(words).tobytes()[:length])


def pack(checkpoint: Checkpoint) -> bytes:
    """The bytes of a checkpoint file."""
    arrays: dict[str, Any] = {f"state.{name}": array for name, array in checkpoint.state.items()}
    arrays |= {f"best.{name}": array for name, array in checkpoint.best.items()}
    file = io.BytesIO()
    np.savez(
        file,
        epoch=np.array(checkpoint.epoch),
        step=np.array(checkpoint.step),
        lowest=np.array(checkpoint.lowest),
        **arrays,
    )
    return file.getvalue()


def unpack(content: bytes) -> Checkpoint:
    """Inverse of pack."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        state = {name.removeprefix("state."): file[name] for name in file.files if name.startswith("state.")}
        best = {name.removeprefix("best."): file[name] for name in file.files if name.startswith("best.")}
        return Checkpoint(int(file["epoch"]), int(file["step"]), state, float(file["lowest"]), best)
