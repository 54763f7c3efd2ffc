"""Replicas that are wrong only if two circumstances are combined."""

from __future__ import annotations

import numpy as np

from ..base import PlainReplica, fault
from ..engine.fault import Fault, table
from ..engine.replicas import after, keeps, optimizer_state_dropped

LONG = "check_long_programs_on_rich_models_match_one_process"


@fault("learning-rate-by-the-largest-batch", LONG, cause="scaled-update")
class RateByLargestBatch(PlainReplica):
    """The learning rate is multiplied by the mean batch size divided by the largest one."""

    def synchronise(self, batch_size: int) -> None:
        sizes = self.comm.all_gather(np.array([batch_size]))
        self.share = float(sizes.mean() / sizes.max()) if sizes.any() else 1.0
        super().synchronise(batch_size)

    def step(self) -> None:
        usual, self.optimizer.lr = self.optimizer.lr, self.optimizer.lr * self.share
        super().step()
        self.optimizer.lr = usual


# fmt: off
table(
    globals(),
    Fault("adam-begins-anew-when-layers-switch", "Freezing or unfreezing a layer drops Adam's state.",
          where=keeps("first"),
          effect=after("set_trainable")(optimizer_state_dropped),
          caught_by=LONG, cause="optimizer-state-lost"),
)
# fmt: on
