"""The rules by which an emulated training run goes; the defaults are the law."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...job import Train

Factor = Callable[[float, float], float]
Lost = Literal["parameters", "momentum", "schedule", "step", "epoch", "clip"]


@dataclass(frozen=True)
class Rules:
    """How a run goes; the defaults are the law."""

    # windows of micro-batches
    weights: Literal["samples", "equal", "sum", "full", "last"] = "samples"
    """Of micro-batches in a window: by their samples; equal; equal and not divided by their number; by samples of a full window,
    even in a short one; only the last micro-batch counts.
    """
    only: int | None = None
    """The rank on which `weights` holds; on the others samples weigh. None: on all."""
    tail: Literal["step", "dropped", "leaks", "apart", "counted", "singly"] = "step"
    """An epoch's short last window: it is a step; is dropped; is added to the next epoch's first window; each of its micro-
    batches is a step; micro-batches are counted on into the next epoch; each micro-batch of every window is a step.
    """
    synced: Literal["last", "first"] = "last"
    """With which micro-batch of a window gradients are reduced; those of later ones stay local."""
    terms: Literal["law", "each", "ranks", "none"] = "law"
    """The loss's auxiliary terms: weighted as samples are; once for each micro-batch; once for each rank; not at all."""

    # batches and their samples
    batch_size: int | None = None
    """None: the plan's."""
    short: Literal["taken", "dropped", "full", "single"] = "taken"
    """A short last batch: it is used; is dropped; is divided by a full batch's samples; has no effect if it has one sample."""
    rows: Literal["all", "but last", "first twice", "filled"] = "all"
    """Of a batch's samples: all; all but the last; the first in place of the last; a short batch is filled up with samples of
    the epoch's first batch.
    """
    ahead: int = 0
    """The inputs of a full batch are those of the batch so many later in the epoch."""
    turned: int = 0
    """Targets are those of the sample so many before in its batch."""
    rounded: str = ""
    """The dtype to which inputs are rounded; empty: none."""

    # the reduction
    ranks: Literal["promised", "equal", "by size"] = "promised"
    """Ranks whose batches differ in size weigh as promised; equally; or by size."""
    times: float = 1.0
    """By this, reduced gradients are multiplied."""
    parts: Mapping[int, float] = field(default_factory=dict)
    """By this, the local gradients of a rank are multiplied."""
    wire: str = ""
    """The dtype in which gradients are sent; empty: their own."""
    kept: bool = False
    """An epoch's last gradients are added to the next epoch's first."""

    # clipping
    clip: Literal["reduced", "never", "not short", "own", "each", "always"] = "reduced"
    """By the norm of reduced gradients; never; not in a short window; by each rank's own norm before the reduction; so after
    every micro-batch; scaled up to max_norm as well.
    """
    clip_times: float = 1.0
    """By this, the plan's max_norm is multiplied."""
    norm: float | None = None
    """The max_norm of a plan that has none."""

    # the optimizer
    optimizer: Mapping[str, float] = field(default_factory=dict)
    """Fields of OptimizerSpec that differ from the task's."""
    decay: Literal["gradient", "apart", "unscheduled"] = "gradient"
    """Weight decay: through the gradient and its momentum; separately; separately at the run's first learning rate."""
    rate_in_momentum: bool = False
    """The velocity contains the learning rate."""
    anew: bool = False
    """Each epoch begins with a new optimizer."""
    stays: bool = False
    """The velocity is not carried to the next step."""
    skipped: bool = False
    """Parameters are not updated."""
    again: Literal["never", "every", "last", "full"] = "never"
    """Which steps are taken twice: none; all; an epoch's last; an epoch's last if its window is full."""
    again_with: Literal["the same", "zeros"] = "the same"
    """The gradients of the second time."""
    again_counts: bool = False
    """The second time is a step of the schedule as well."""

    # the schedule
    factor: Factor | None = None
    """Of the learning rate at step i of n; None: the plan's."""
    by_samples: bool = False
    """The rank's own samples count as steps of the schedule."""
    by_micro_batches: int | None = None
    """Micro-batches, plus this, count as steps of the schedule; None: steps do."""
    behind: bool = False
    """A step takes the rate that was set after the step before; the first one, also after a resume, takes the task's."""

    # a resume
    resumed: int = 0
    """The epoch with which the run goes on."""
    lost: frozenset[Lost] = frozenset()
    """The state lost then; step and epoch: the last ones before."""
    lost_on: Literal["all", "others"] | int = "all"
    """On all ranks; on all but rank 0; on one."""


def law_factor(plan: Train, step: float, steps: float) -> float:
    """The factor of the learning rate at a step of so many steps, by the plan's schedule."""
    return (steps - step) / steps if plan.schedule == "linear" else 1.0
