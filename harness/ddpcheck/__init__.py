"""ddpcheck: is this data-parallel training implementation right, and how does it scale?

Names are imported at first use: the pytest plugin is part of every pytest run, and must not import NumPy there.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checks import Check, law
    from .contract import (
        TYPICAL,
        CallForm,
        Capabilities,
        CollectivePromises,
        Determinism,
        FailureRule,
        FloatRule,
        MetricPromises,
        RandomnessPromises,
        RendezvousRule,
        ReplicaMethod,
        ReplicaPromises,
        ReplicaSync,
        SamplerPromises,
        ScorePromises,
        Traffic,
        TrainerPromises,
        WorldPromises,
    )
    from .contract.adapter import Adapter, Batch, Collectives, Facets, Handle, Replica, Sampler
    from .contract.rank_context import RankContext, rank_context
    from .contract.trainer import TrainingRun, TrainingTask
    from .job import Job
    from .launchers.mpi import Mpiexec
    from .launchers.multiprocess import Multiprocessing
    from .launchers.processes import Processes
    from .launchers.torchrun import Torchrun
    from .models.spec import ModelSpec, mlp
    from .ranks.attaching import StartFailed
    from .running.check_runner import check_adapter, run_checks
    from .session import Session
    from .testing import parametrize_with_checks
    from .trace import RankTrace, Trace
    from .verdict import Diagnosis, Finding, Verdict

__version__ = "0.1.0"

__all__ = [
    "TYPICAL",
    "Adapter",
    "Batch",
    "CallForm",
    "Capabilities",
    "Check",
    "CollectivePromises",
    "Collectives",
    "Determinism",
    "Diagnosis",
    "Facets",
    "FailureRule",
    "Finding",
    "FloatRule",
    "Handle",
    "Job",
    "MetricPromises",
    "ModelSpec",
    "Mpiexec",
    "Multiprocessing",
    "Processes",
    "RandomnessPromises",
    "RankContext",
    "RankTrace",
    "RendezvousRule",
    "Replica",
    "ReplicaMethod",
    "ReplicaPromises",
    "ReplicaSync",
    "Sampler",
    "SamplerPromises",
    "ScorePromises",
    "Session",
    "StartFailed",
    "Torchrun",
    "Trace",
    "Traffic",
    "TrainerPromises",
    "TrainingRun",
    "TrainingTask",
    "Verdict",
    "WorldPromises",
    "check_adapter",
    "law",
    "mlp",
    "parametrize_with_checks",
    "rank_context",
    "run_checks",
]

_NAMES_BY_MODULE = {
    "contract.adapter": ("Adapter", "Batch", "Collectives", "Facets", "Handle", "Replica", "Sampler"),
    "contract": (
        "TYPICAL",
        "CallForm",
        "Capabilities",
        "CollectivePromises",
        "Determinism",
        "FailureRule",
        "FloatRule",
        "MetricPromises",
        "RandomnessPromises",
        "RendezvousRule",
        "ReplicaMethod",
        "ReplicaPromises",
        "ReplicaSync",
        "SamplerPromises",
        "ScorePromises",
        "Traffic",
        "TrainerPromises",
        "WorldPromises",
    ),
    "checks": ("Check", "law"),
    "contract.rank_context": ("RankContext", "rank_context"),
    "job": ("Job",),
    "launchers.mpi": ("Mpiexec",),
    "launchers.multiprocess": ("Multiprocessing",),
    "launchers.processes": ("Processes",),
    "launchers.torchrun": ("Torchrun",),
    "models.spec": ("ModelSpec", "mlp"),
    "ranks.attaching": ("StartFailed",),
    "running.check_runner": ("check_adapter", "run_checks"),
    "session": ("Session",),
    "testing": ("parametrize_with_checks",),
    "trace": ("RankTrace", "Trace"),
    "contract.trainer": ("TrainingRun", "TrainingTask"),
    "verdict": ("Diagnosis", "Finding", "Verdict"),
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'ddpcheck' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
