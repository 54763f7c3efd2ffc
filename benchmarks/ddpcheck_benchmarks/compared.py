"""All-reduces of float32 that can be compared in one process: each is made on every rank, and then reduces arrays in place."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Client, Listener
from typing import Any

import numpy as np

from ddpcheck.environment import RankContext
from ddpcheck.references import resolve
from ddpcheck.values import Array
from ddpcheck_implementations.numpy_sockets.communicator import Communicator
from ddpcheck_implementations.numpy_sockets.memory import Region, map_region

SOCKETS = "ddpcheck_implementations.numpy_sockets"
AUTHORITY = b"ring"
SMALL_BYTES = TUNED_BYTES = 1 << 20
MEMORY = "memory"
Turn = tuple[float, float, int]
"""When a rank began and ended, in seconds on the clock that all of a host share, and how many all-reduces it made."""


class Compared:
    """`array(count)` makes an array, `reduce` sums it over the ranks in place."""

    def __init__(self, array: Callable[[int], Array], reduce: Callable[[Array], object]) -> None:
        self.array, self.reduce = array, reduce


def of_sockets(context: RankContext, adapter: str = "adapter") -> Communicator:
    """The communicator of one of the adapters of numpy_sockets."""
    communicator: Communicator = resolve(f"{SOCKETS}:{adapter}")[0].connect(context).collectives
    return communicator


def plain(count: int) -> Array:
    return np.zeros(count, np.float32)


def in_place(communicator: Communicator, *, own_buffers: bool = False) -> Compared:
    """all_reduce_in_place on plain arrays, or on those that the communicator's empty() makes."""

    def made(count: int) -> Array:
        array = communicator.empty((count,), np.float32)
        array[:] = 0
        return array

    return Compared(made if own_buffers else plain, communicator.all_reduce_in_place)


def of_gloo(context: RankContext) -> Compared:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    address = f"tcp://{context.master_addr}:{context.master_port}"
    dist.init_process_group("gloo", init_method=address, rank=context.rank, world_size=context.world_size)
    return Compared(plain, lambda array: dist.all_reduce(torch.from_numpy(array)))


def of_naive(context: RankContext) -> Compared:
    """The ring of a tutorial: whole chunks, pickled, one step after the other."""
    rank, world = context.rank, context.world_size
    collectives = of_sockets(context, "tcp")
    with Listener((context.master_addr, 0), authkey=AUTHORITY) as listener:
        ports = collectives.all_gather(np.array(listener.address[1])).tolist()
        address = context.master_addr, ports[(rank + 1) % world]
        if rank:
            after = Client(address, authkey=AUTHORITY)
            before = listener.accept()
        else:
            before = listener.accept()
            after = Client(address, authkey=AUTHORITY)

    def step(chunk: Array) -> Array:
        if rank:
            after.send(chunk)
        received: Array = before.recv()
        if not rank:
            after.send(chunk)
        return received

    def reduce(array: Array) -> None:
        chunks = np.array_split(array, world)
        for at in range(world - 1):
            chunks[(rank - at - 1) % world] += step(chunks[(rank - at) % world])
        for at in range(world - 1):
            chunks[(rank - at) % world][:] = step(chunks[(rank + 1 - at) % world])

    return Compared(plain, reduce)


def of_mpi(tuned: bool = False) -> Compared:
    """`tuned` cuts arrays into all-reduces of TUNED_BYTES."""
    from mpi4py import MPI

    world, count = MPI.COMM_WORLD, TUNED_BYTES // 4

    def in_pieces(array: Array) -> None:
        for start in range(0, array.size, count):
            world.Allreduce(MPI.IN_PLACE, array[start : start + count])

    return Compared(plain, in_pieces if tuned else lambda array: world.Allreduce(MPI.IN_PLACE, array))


def of_memory(communicator: Communicator) -> Compared:
    """No all-reduce, but what memory allows: each rank reads and writes its part of every rank's array.

    That is the least that ranks who reduce in place must touch: all that was given is read once, and all results are written.
    """
    rank, world = communicator.rank, communicator.world_size
    parts: list[Array] = []

    def made(count: int) -> Array:
        region = Region(count * 4)
        places = communicator.all_gather(np.array([os.getpid(), region.descriptor])).tolist()
        views = [
            region.view if one == rank else map_region(process, descriptor, region.size)
            for one, (process, descriptor) in enumerate(places)
        ]
        communicator.barrier()  # all have mapped it
        region.close()
        arrays = [np.frombuffer(view, np.float32) for view in views]
        parts[:] = [array[count * rank // world : count * (rank + 1) // world] for array in arrays]
        return arrays[rank]

    def touch(array: Array) -> None:
        for part in parts:
            np.negative(part, out=part)

    return Compared(made, touch)


MAKERS: Mapping[str, Callable[[RankContext], Compared]] = {
    "tcp": lambda context: in_place(of_sockets(context, "tcp")),
    "unix": lambda context: in_place(of_sockets(context, "unix")),
    "shm": lambda context: in_place(of_sockets(context)),
    "shm, empty()": lambda context: in_place(of_sockets(context), own_buffers=True),
    "Gloo": of_gloo,
    "naive": of_naive,
    MEMORY: lambda context: of_memory(of_sockets(context)),
}


def measure(names: Sequence[str], context: RankContext, ports: Sequence[int], sizes: Sequence[int], rounds: int) -> str:
    """Take turns: for each size `rounds` times each. JSON {name: {size: [this rank's Turn in each round]}}.

    A wrong sum is an AssertionError. The first of `ports` is for a barrier before each turn.
    """
    barrier = of_sockets(replace(context, master_port=ports[0])).barrier
    compared: dict[str, Compared] = {}
    for name, port in zip(names, ports[1:], strict=True):
        barrier()
        compared[name] = MAKERS[name](replace(context, master_port=port))
    return json.dumps(take_turns(compared, barrier, context.rank, context.world_size, sizes, rounds))


def take_turns(
    compared: Mapping[str, Compared],
    barrier: Callable[[], Any],
    rank: int,
    world_size: int,
    sizes: Sequence[int],
    rounds: int,
) -> dict[str, dict[int, list[Turn]]]:
    """This rank's part, name by name and size by size."""
    taken: dict[str, dict[int, list[Turn]]] = {name: {} for name in compared}
    for size in sizes:
        for name, times in _turns(compared, barrier, rank, world_size, size, rounds).items():
            taken[name][size] = times
    return taken


def _turns(
    compared: Mapping[str, Compared], barrier: Callable[[], Any], rank: int, world_size: int, size: int, rounds: int
) -> dict[str, list[Turn]]:
    """Those that like the same arrays share one, so that a few GiB are enough for all sizes."""
    made = {make: make(size // 4) for make in dict.fromkeys(each.array for each in compared.values())}
    for name, each in compared.items():
        array = made[each.array]
        array[:] = rank + 1
        each.reduce(array)
        wrong = 0 if name == MEMORY else int((array != world_size * (world_size + 1) / 2).sum())
        assert not wrong, f"{name}: {wrong} of {array.size} elements are wrong"
        array[:] = 0  # which can be added up for ever
    taken: dict[str, list[Turn]] = {name: [] for name in compared}
    for _ in range(rounds):
        for name, each in compared.items():
            array, reduce = made[each.array], each.reduce
            calls = 1 if size > SMALL_BYTES or name == "naive" else 20
            barrier()
            reduce(array)
            begin = time.perf_counter()
            for _ in range(calls):
                reduce(array)
            taken[name].append((begin, time.perf_counter(), calls))
    return taken
