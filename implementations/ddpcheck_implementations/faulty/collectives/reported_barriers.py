"""Barriers from bug reports, which a rank leaves before all others have entered."""

from __future__ import annotations

import numpy as np

from ..facet_seams import Group, PassThrough, collectives
from ..lifecycle.timing import BARRIER


@collectives(
    "barrier-left-when-root-has-entered",
    BARRIER,
    seen_in=("rapidsai/rapidsmpf#857",),
    cause="barrier-waits-for-some",
    world_size=3,
)
class LeftWithRoot(PassThrough):
    """The root of a barrier tells the others that it has begun, and they leave although some have not entered."""

    def barrier(self, *, group: Group = None) -> None:
        root, *others = sorted(group) if group is not None else range(self.world)
        token = np.zeros(1)
        if self.rank == root:
            for other in others:
                self.comm.send(token, other)
            for other in others:
                self.comm.recv(token, other)
        else:
            self.comm.send(token, root)
            self.comm.recv(token, root)
