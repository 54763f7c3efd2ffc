"""The third ring: the array is cut into blocks, and each block is added up on its way around, in one order for all ranks."""

import numpy as np
from wire import Neighbours

from ddpcheck import Adapter, Capabilities, CollectivePromises, Determinism, Facets, WorldPromises


class Ring:
    def __init__(self, context):
        self.wire = Neighbours(context)

    def all_reduce(self, array, op="sum", *, group=None):
        size, rank = self.wire.world_size, self.wire.rank
        blocks = np.array_split(np.array(array).reshape(-1), size)
        for turn in range(size - 1):  # reduce-scatter: in the end block rank + 1 is complete here
            mine, theirs = (rank - turn) % size, (rank - turn - 1) % size
            self.wire.send(blocks[mine])
            blocks[theirs] = blocks[theirs] + self.wire.receive(blocks[theirs])
        for turn in range(size - 1):  # all-gather: the complete blocks go around
            mine, theirs = (rank + 1 - turn) % size, (rank - turn) % size
            self.wire.send(blocks[mine])
            blocks[theirs] = self.wire.receive(blocks[theirs])
        return np.concatenate(blocks).reshape(array.shape)


def connect(context):
    ring = Ring(context)
    return Facets(rank=context.rank, world_size=context.world_size, collectives=ring, close=ring.wire.close)


adapter = Adapter(
    "ring_3",
    connect,
    Capabilities(
        world=WorldPromises(determinism=Determinism.BETWEEN_RANKS),
        collectives=CollectivePromises(operations={"all_reduce"}, reductions={"sum"}),
    ),
)
