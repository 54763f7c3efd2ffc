import numpy as np


def all_reduce(wire, array):
    total, passing = np.array(array), array
    for _ in range(max(1, wire.world_size - 2) if wire.world_size > 1 else 0):
        wire.send(passing)
        passing = wire.receive(array)
        total += passing
    return total
