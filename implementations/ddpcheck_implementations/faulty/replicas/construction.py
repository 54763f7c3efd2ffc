"""Replicas whose construction seeds the process's random generators or changes process settings."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np

from ddpcheck.models.spec import ModelSpec

from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.modules import ModuleEffect, ddp
from ..engine.replicas import before
from ..registry import invented

MAKING = "check_make_replica_leaves_process_state_unchanged"


@before("start")
def all_ranks_seeded_alike(replica: PlainReplica, model: ModelSpec) -> None:
    """Meant for equal initial values on all ranks, which the caller passes anyway."""
    np.random.seed(42)
    random.seed(42)


@before("start")
def seeded_by_a_number_of_rank_0(replica: PlainReplica, model: ModelSpec) -> None:
    drawn = np.array(np.random.randint(1 << 31), np.int64)
    np.random.seed(int(replica.comm.broadcast(drawn)))


@before("start")
def warnings_ignored(replica: PlainReplica, model: ModelSpec) -> None:
    warnings.simplefilter("ignore")


def _seeded(module: Any) -> Any:
    """Scripts often do this in main()."""
    import torch

    torch.manual_seed(42)
    return ddp(module)


def _looking_for_anomalies(module: Any) -> Any:
    """All later backwards of the process are slower."""
    import torch

    torch.autograd.set_detect_anomaly(True)
    return ddp(module)


@fault("random-values-drawn-and-restored")
class DrawnFirst(PlainReplica):
    """Correct: construction draws random values, then restores Python's generator to its earlier state."""

    between_processes = True

    def start(self, model: ModelSpec) -> None:
        np.random.standard_normal(7 + self.rank)
        was = random.getstate()
        random.seed(42)
        random.random()
        random.setstate(was)
        super().start(model)


# fmt: off
table(
    globals(),
    Fault("seeds-for-equal-values", "make_replica() seeds the process's random generators with 42 on every rank.",
          where=always,
          effect=all_ranks_seeded_alike.of(PlainReplica, between_processes=True),
          caught_by=MAKING, cause="making-seeds-generator",
          in_torch=("torch-seeded-by-the-wrapper", ModuleEffect(_seeded), invented)),
    Fault("generator-of-rank-0-for-all", "make_replica() seeds every rank's NumPy generator with a number from rank 0.",
          where=always,
          effect=seeded_by_a_number_of_rank_0.of(PlainReplica, between_processes=True),
          caught_by=MAKING, cause="making-seeds-ranks-alike"),
    Fault("warnings-switched-off-by-making", "make_replica() turns off warnings in the whole process.",
          where=always,
          effect=warnings_ignored.of(PlainReplica, between_processes=True),
          caught_by=MAKING, cause="process-setting-changed"),
    Fault("anomalies-looked-for-from-then-on",
          "The wrapper turns on torch's anomaly detection, which slows every later backward.",
          where=always,
          effect=ModuleEffect(_looking_for_anomalies),
          caught_by=MAKING, cause="process-setting-changed"),
)
# fmt: on
