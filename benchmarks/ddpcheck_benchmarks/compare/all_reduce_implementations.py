"""All-reduces of float32 for the comparison: each is constructed on every rank of a program, and reduces arrays in
place.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Protocol

import numpy as np

from ddpcheck.contract.adapter import Collectives
from ddpcheck.contract.optional_methods import InPlace
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.running.adapter_lookup import resolve
from ddpcheck.seeded_values import Array

AUTHORITY = b"ring"
MEMORY = "memory"
MPI_PIECE_BYTES = 4 << 20
"""Piece size of a tuned MPI; numpy_mpi was fastest with it."""


class Reducing(Collectives, InPlace, Protocol):
    """Collectives that also reduce into the caller's own arrays."""


@dataclass(frozen=True, slots=True)
class Compared:
    """`array(count)` makes an array, `reduce` sums it over the ranks in place, `barrier` returns when all ranks call it."""

    array: Callable[[int], Array]
    reduce: Callable[[Array], object]
    barrier: Callable[[], object]


def of_sockets(context: RankContext, adapter: str = "numpy_sockets") -> Reducing:
    """The communicator of this installed adapter, which must be numpy_sockets or a variant of it."""
    communicator: Reducing = resolve(adapter)[0].connect(context).collectives
    return communicator


def plain(count: int) -> Array:
    return np.zeros(count, np.float32)


def in_place(communicator: Reducing, *, own_buffers: bool = False) -> Compared:
    """all_reduce_in_place on plain arrays, or on arrays from the communicator's empty()."""

    def made(count: int) -> Array:
        array = communicator.empty((count,), "float32")
        array[:] = 0
        return array

    return Compared(made if own_buffers else plain, communicator.all_reduce_in_place, communicator.barrier)


def of_gloo(context: RankContext) -> Compared:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    address = f"tcp://{context.master_addr}:{context.master_port}"
    dist.init_process_group("gloo", init_method=address, rank=context.rank, world_size=context.world_size)
    return Compared(plain, lambda array: dist.all_reduce(torch.from_numpy(array)), dist.barrier)


def of_naive(context: RankContext) -> Compared:
    """The ring of a tutorial: whole chunks, pickled, one step after the other."""
    rank, world = context.rank, context.world_size
    collectives = of_sockets(context, "numpy_sockets_tcp")
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

    return Compared(plain, reduce, collectives.barrier)


def of_mpi(tuned: bool = False) -> Compared:
    """An MPI's Allreduce; `tuned` cuts arrays into pieces as numpy_mpi does."""
    from mpi4py import MPI

    world, count = MPI.COMM_WORLD, MPI_PIECE_BYTES // 4

    def in_pieces(array: Array) -> None:
        for start in range(0, array.size, count):
            world.Allreduce(MPI.IN_PLACE, array[start : start + count])

    return Compared(plain, in_pieces if tuned else lambda array: world.Allreduce(MPI.IN_PLACE, array), world.Barrier)


def of_memory(communicator: Collectives, rank: int, world: int) -> Compared:
    """The memory bandwidth limit, not an all-reduce: each rank reads and writes its part of every rank's array.

    No reduction in place can do with less memory traffic: all arguments are read once, and all results are written.
    """
    parts: list[Array] = []

    def made(count: int) -> Array:
        own = os.memfd_create("compared")
        os.posix_fallocate(own, 0, count * 4)
        places = communicator.all_gather(np.array([os.getpid(), own])).tolist()
        arrays = [np.frombuffer(_mapped(process, number, count * 4), np.float32) for process, number in places]
        communicator.barrier()  # all ranks have mapped it
        os.close(own)
        parts[:] = [array[count * rank // world : count * (rank + 1) // world] for array in arrays]
        return arrays[rank]

    def touch(array: Array) -> None:
        for part in parts:
            np.negative(part, out=part)

    return Compared(made, touch, communicator.barrier)


def _mapped(process: int, descriptor: int, size: int) -> mmap.mmap:
    """Memory of a process of this host, by its file descriptor in that process."""
    with Path(f"/proc/{process}/fd/{descriptor}").open("r+b") as file:
        return mmap.mmap(file.fileno(), size)


MAKERS: Mapping[str, Callable[[RankContext], Compared]] = {
    "tcp": lambda context: in_place(of_sockets(context, "numpy_sockets_tcp")),
    "unix": lambda context: in_place(of_sockets(context, "numpy_sockets_unix")),
    "shm": lambda context: in_place(of_sockets(context)),
    "shm, empty()": lambda context: in_place(of_sockets(context), own_buffers=True),
    "Gloo": of_gloo,
    "naive": of_naive,
    MEMORY: lambda context: of_memory(of_sockets(context), context.rank, context.world_size),
}
