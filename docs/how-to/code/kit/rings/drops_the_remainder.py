import numpy as np


def all_reduce(wire, array):
    total = np.array(array)
    even = array.size - array.size % wire.world_size
    flat, passing = total.reshape(-1), array.reshape(-1)[:even]
    for _ in range(wire.world_size - 1):
        wire.send(np.ascontiguousarray(passing))
        passing = wire.receive(np.empty(even, array.dtype))
        flat[:even] += passing
    return total
