def all_reduce(wire, array):
    passing = array.copy()
    for _ in range(wire.world_size - 1):
        wire.send(passing)
        passing = wire.receive(array)
        array += passing
    return array
