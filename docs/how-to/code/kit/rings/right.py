import numpy as np


def all_reduce(wire, array):
    parts = {wire.rank: array}
    passing = array
    for step in range(1, wire.world_size):
        wire.send(passing)
        passing = wire.receive(array)
        parts[(wire.rank - step) % wire.world_size] = passing
    total = np.zeros_like(array)
    for rank in range(wire.world_size):  # in the same order everywhere
        total += parts[rank]
    return total
