"""The fourth ring: even ranks send first and odd ranks receive first, so no two ranks wait for each other."""

import numpy as np
from wire import Neighbours

from ddpcheck import Adapter, Capabilities, CollectivePromises, Determinism, Facets, Traffic, WorldPromises


class Ring:
    def __init__(self, context):
        self.wire = Neighbours(context)

    def all_reduce(self, array, op="sum", *, group=None):
        size, rank = self.wire.world_size, self.wire.rank
        blocks = np.array_split(np.array(array).reshape(-1), size)
        for turn in range(size - 1):  # reduce-scatter: in the end block rank + 1 is complete here
            mine, theirs = (rank - turn) % size, (rank - turn - 1) % size
            blocks[theirs] = blocks[theirs] + self.exchanged(blocks[mine], blocks[theirs])
        for turn in range(size - 1):  # all-gather: the complete blocks go around
            mine, theirs = (rank + 1 - turn) % size, (rank - turn) % size
            blocks[theirs] = self.exchanged(blocks[mine], blocks[theirs])
        return np.concatenate(blocks).reshape(array.shape)

    def exchanged(self, sent, like):
        if self.wire.rank % 2:
            received = self.wire.receive(like)
            self.wire.send(sent)
        else:
            self.wire.send(sent)
            received = self.wire.receive(like)
        return received


def connect(context):
    ring = Ring(context)
    return Facets(rank=context.rank, world_size=context.world_size, collectives=ring, close=ring.wire.close)


adapter = Adapter(
    "ring_4",
    connect,
    Capabilities(
        world=WorldPromises(determinism=Determinism.BETWEEN_RUNS, traffic=Traffic.LEAST),
        collectives=CollectivePromises(operations={"all_reduce"}, reductions={"sum"}),
    ),
)
