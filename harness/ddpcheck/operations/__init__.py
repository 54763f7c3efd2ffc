"""The operations of a Job, by subject."""

from __future__ import annotations

from typing import TypeAlias

from .accumulation_windows import CloseWindow, OpenWindow
from .collectives import AllGather, AllReduce, Barrier, Broadcast, ReduceScatter, SendRecv, Wait
from .data import DataSpec, Layout, OptimizerSpec, PerRank, TensorSpec
from .probes import Attempt, Close, Leave, Left, Make, OnRanks, ProbeGradients, Rounds, Sent, WatchCollectives
from .randomness import Disturb, Draw
from .rank_failures import BreakConnections, Kill, Raise, Sleep
from .repeated_calls import Calls
from .replica import (
    Backward,
    Clip,
    Join,
    Observe,
    Predict,
    Remeasure,
    Resume,
    Save,
    SetTrainable,
    Step,
    Switch,
    ZeroGrad,
)
from .resume_sampling import ResumeSampling
from .sampling import Aggregate, Sample
from .scoring import Score
from .start import ShortReads, SmallBuffers, Start
from .timing import MeasureCollective, MeasureSteps
from .training import Train

Operation: TypeAlias = (
    Backward | ZeroGrad | Clip | Step | Observe | Predict | Save | Resume | SetTrainable | Join | Remeasure | Switch
    | Calls | AllReduce | Wait | Broadcast | AllGather | ReduceScatter | Barrier | SendRecv
    | Sample | ResumeSampling | Draw | Aggregate | Score | Train | Sleep | Raise | Kill | BreakConnections
    | OpenWindow | CloseWindow | OnRanks | Attempt | Make | Rounds | Leave | Close | Left | Sent | Disturb | ShortReads
    | SmallBuffers | WatchCollectives | ProbeGradients
    | MeasureCollective | MeasureSteps
)  # fmt: skip

__all__ = [
    "Aggregate",
    "AllGather",
    "AllReduce",
    "Attempt",
    "Backward",
    "Barrier",
    "BreakConnections",
    "Broadcast",
    "Calls",
    "Clip",
    "Close",
    "CloseWindow",
    "DataSpec",
    "Disturb",
    "Draw",
    "Join",
    "Kill",
    "Layout",
    "Leave",
    "Left",
    "Make",
    "MeasureCollective",
    "MeasureSteps",
    "Observe",
    "OnRanks",
    "OpenWindow",
    "Operation",
    "OptimizerSpec",
    "PerRank",
    "Predict",
    "ProbeGradients",
    "Raise",
    "ReduceScatter",
    "Remeasure",
    "Resume",
    "ResumeSampling",
    "Rounds",
    "Sample",
    "Save",
    "Score",
    "SendRecv",
    "Sent",
    "SetTrainable",
    "ShortReads",
    "Sleep",
    "SmallBuffers",
    "Start",
    "Step",
    "Switch",
    "TensorSpec",
    "Train",
    "Wait",
    "WatchCollectives",
    "ZeroGrad",
]
