"""What making a replica does to the process: generators that it seeds, settings that it leaves changed."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np

from ddpcheck.models.spec import ModelSpec

from ..base import PlainReplica, fault
from ..in_torch.wrappers import torch_fault

MAKING = "check_make_replica_seeds_no_process_generator"


@fault("seeds-for-equal-values", MAKING, cause="making-seeds-generator")
class SeedsForEqualValues(PlainReplica):
    """All ranks are seeded alike, so that they would draw the same first values; then they are given, after all."""

    between_processes = True

    def start(self, model: ModelSpec) -> None:
        np.random.seed(42)
        random.seed(42)
        super().start(model)


@fault("generator-of-rank-0-for-all", MAKING, cause="making-seeds-ranks-alike")
class GeneratorOfRankZero(PlainReplica):
    """Rank 0 draws a seed, and all ranks take it."""

    between_processes = True

    def start(self, model: ModelSpec) -> None:
        drawn = np.array(np.random.randint(1 << 31), np.int64)
        np.random.seed(int(self.comm.broadcast(drawn)))
        super().start(model)


@fault("warnings-switched-off-by-making", MAKING, cause="process-setting-changed")
class WarningsSwitchedOff(PlainReplica):
    """A warning that making gives is switched off, and so are all others."""

    between_processes = True

    def start(self, model: ModelSpec) -> None:
        warnings.simplefilter("ignore")
        super().start(model)


@torch_fault("torch-seeded-by-the-wrapper", MAKING, cause="making-seeds-generator")
def torch_seeded_by_the_wrapper(module: Any) -> Any:
    """The wrapper seeds torch before it broadcasts, as many a script does in its main()."""
    import torch

    from ..in_torch.wrappers import ddp

    torch.manual_seed(42)
    return ddp(module)


@torch_fault("anomalies-looked-for-from-then-on", MAKING, cause="process-setting-changed")
def anomalies_looked_for(module: Any) -> Any:
    """What was switched on to find a NaN stays so: every backward of the program is slower from then on."""
    import torch

    from ..in_torch.wrappers import ddp

    torch.autograd.set_detect_anomaly(True)
    return ddp(module)


@fault("random-values-drawn-and-restored")
class DrawnFirst(PlainReplica):
    """Values are drawn before those that were given take their place; what is seeded for a while is put back."""

    between_processes = True

    def start(self, model: ModelSpec) -> None:
        np.random.standard_normal(7 + self.rank)
        was = random.getstate()
        random.seed(42)
        random.random()
        random.setstate(was)
        super().start(model)
