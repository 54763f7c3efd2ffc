"""A communicator of NumPy arrays, whose mean divides once too often."""

import numpy as np
from wire import Neighbours

from ddpcheck import Adapter, Capabilities, CollectivePromises, Facets


class Ring:
    def __init__(self, context):
        self.wire = Neighbours(context)

    def all_reduce(self, array, op="sum", *, group=None):
        total, passing = np.array(array), array
        for _ in range(self.wire.world_size - 1):
            self.wire.send(passing)
            passing = self.wire.receive(array)
            total += passing
        return total if op == "sum" else total / self.wire.world_size**2


def connect(context):
    ring = Ring(context)
    return Facets(rank=context.rank, world_size=context.world_size, collectives=ring, close=ring.wire.close)


promises = CollectivePromises(operations={"all_reduce"}, reductions={"sum", "mean"})
adapter = Adapter("ring", connect, Capabilities(collectives=promises))
