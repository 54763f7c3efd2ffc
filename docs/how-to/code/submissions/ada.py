import numpy as np


def all_reduce(wire, array):
    total, passing = np.array(array), array
    for _ in range(wire.world_size - 1):
        wire.send(passing)
        passing = wire.receive(array)
        total += passing
    return total
