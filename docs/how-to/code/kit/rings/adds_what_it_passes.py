import numpy as np


def all_reduce(wire, array):
    total = np.array(array)
    for _ in range(wire.world_size - 1):
        wire.send(total)
        total += wire.receive(array)
    return total
