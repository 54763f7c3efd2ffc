"""The second ring: every rank passes on what came, and adds it to a copy of its own array."""

import numpy as np
from wire import Neighbours

from ddpcheck import Adapter, Capabilities, CollectivePromises, Determinism, Facets, WorldPromises


class Ring:
    def __init__(self, context):
        self.wire = Neighbours(context)

    def all_reduce(self, array, op="sum", *, group=None):
        total, passing = np.array(array), array
        for _ in range(self.wire.world_size - 1):
            self.wire.send(passing)
            passing = self.wire.receive(array)
            total += passing
        return total


def connect(context):
    ring = Ring(context)
    return Facets(rank=context.rank, world_size=context.world_size, collectives=ring, close=ring.wire.close)


adapter = Adapter(
    "ring_2",
    connect,
    Capabilities(collectives=CollectivePromises(operations={"all_reduce"}, reductions={"sum"})),
)

promises_equal_bits = Adapter(
    "ring_2",
    connect,
    Capabilities(
        world=WorldPromises(determinism=Determinism.BETWEEN_RANKS),
        collectives=CollectivePromises(operations={"all_reduce"}, reductions={"sum"}),
    ),
)
