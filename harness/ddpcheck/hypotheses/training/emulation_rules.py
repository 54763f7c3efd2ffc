"""The rules of an emulated training run; the defaults are the law."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...job import Train

Factor = Callable[[float, float], float]
Lost = Literal["parameters", "momentum", "schedule", "step", "epoch", "clip"]


@dataclass(frozen=True)
class Rules:
    """The rules of a run; the defaults are the law."""

    # windows of micro-batches
    weights: Literal["samples", "equal", "sum", "full", "last"] = "samples"
    """Weights of micro-batches in a window: by their samples; equal; equal and not divided by their number; by samples
    of a full window, even in a short one; only the last micro-batch counts.
    """
    only: int | None = None
    """The rank on which `weights` holds; on the others samples weigh. None: on all."""
    tail: Literal["step", "dropped", "leaks", "apart", "counted", "singly"] = "step"
    """An epoch's short last window: it is a step; is dropped; is added to the next epoch's first window; each of its
    micro- batches is a step; micro-batches are counted on into the next epoch; each micro-batch of every window is a
    step.
    """
    synced: Literal["last", "first"] = "last"
    """The micro-batch of a window at which gradients are reduced; those of later ones stay local."""
    terms: Literal["law", "each", "ranks", "none"] = "law"
    """The loss's auxiliary terms: weighted as samples are; once for each micro-batch; once for each rank; not at
    all.
    """

    # batches and their samples
    batch_size: int | None = None
    """None: the plan's."""
    short: Literal["taken", "dropped", "full", "single"] = "taken"
    """A short last batch: it is used; is dropped; is divided by a full batch's samples; has no effect if it has one sample."""
    rows: Literal["all", "but last", "first twice", "filled"] = "all"
    """Samples of a batch: all; all but the last; the first in place of the last; a short batch is filled up with
    samples of the epoch's first batch.
    """
    ahead: int = 0
    """The inputs of a full batch are those of the batch `ahead` positions later in the epoch."""
    turned: int = 0
    """Targets are those of the sample `turned` positions before in its batch."""
    rounded: str = ""
    """The dtype to which inputs are rounded; empty: none."""

    # the reduction
    ranks: Literal["promised", "equal", "by size"] = "promised"
    """Weights of ranks with different batch sizes: as promised; equal; by size."""
    times: float = 1.0
    """Factor of the reduced gradients."""
    parts: Mapping[int, float] = field(default_factory=dict)
    """Factor of the local gradients, by rank."""
    wire: str = ""
    """The dtype in which gradients are sent; empty: their own."""
    kept: bool = False
    """An epoch's last gradients are added to the next epoch's first."""

    # clipping
    clip: Literal["reduced", "never", "not short", "own", "each", "always"] = "reduced"
    """The norm for clipping: of reduced gradients; never; not in a short window; each rank's own norm before the
    reduction; the same after every micro-batch; short gradients are scaled up to max_norm as well.
    """
    clip_times: float = 1.0
    """Factor of the plan's max_norm."""
    norm: float | None = None
    """The max_norm of a plan without one."""

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
    """Steps that are taken twice: none; all; an epoch's last; an epoch's last if its window is full."""
    again_with: Literal["the same", "zeros"] = "the same"
    """The gradients of the second time."""
    again_counts: bool = False
    """The second time counts as a step of the schedule, too."""

    # the schedule
    factor: Factor | None = None
    """Factor of the learning rate at step i of n; None: the plan's."""
    by_samples: bool = False
    """The rank's own samples count as steps of the schedule."""
    by_micro_batches: int | None = None
    """Micro-batches, plus this, count as steps of the schedule; None: steps do."""
    behind: bool = False
    """A step uses the rate of the previous step; the first one, also after a resume, uses the task's rate."""

    # a resume
    resumed: int = 0
    """The epoch at which the run resumes."""
    lost: frozenset[Lost] = frozenset()
    """The state that is lost at the resume; step and epoch: the last ones before."""
    lost_on: Literal["all", "others"] | int = "all"
    """Where it is lost: on all ranks; on all but rank 0; on one rank."""


def law_factor(plan: Train, step: float, steps: float) -> float:
    """The factor of the learning rate at step `step` of `steps`, by the plan's schedule."""
    return (steps - step) / steps if plan.schedule == "linear" else 1.0
