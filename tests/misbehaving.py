"""Adapters that fail in every way that the harness must survive; each offers one collective, selected by `op`."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np

from ddpcheck import Adapter, Facets, RankContext
from ddpcheck.contract import TYPICAL
from ddpcheck.seeded_values import Array


class Importing:
    """Returns each rank's own array, and imports a slow framework at its first use."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: object = None) -> Array:
        load = spec_from_file_location("slow_to_import", Path(__file__).with_name("slow_to_import.py"))
        assert load is not None
        assert load.loader is not None
        load.loader.exec_module(module_from_spec(load))
        return array.copy()


class Alone:
    """Never communicates: all_reduce returns each rank's own array. The reduction selects the failure."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def all_reduce(self, array: Array, op: str = "sum", *, group: object = None) -> object:
        if op == "sum":
            return array.copy()
        if self.rank != 1:
            return array.copy()
        if op == "max":
            self.wait_for_ever()
        if op == "min":
            os.kill(os.getpid(), signal.SIGSTOP)
        if op == "prod":
            ctypes.string_at(0)  # SIGSEGV
        return "not an array"

    def wait_for_ever(self) -> None:
        while True:
            signal.pause()


class Exchanging:
    """Sends itself messages over TCP: without end in a sum; one in a maximum, and then waits for another."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.here = socket.create_connection(listener.getsockname())
            self.there, _ = listener.accept()

    def all_reduce(self, array: Array, op: str = "sum", *, group: object = None) -> Array:
        self.exchange()
        while op == "sum":
            self.exchange()
        self.there.recv(1)
        return array

    def exchange(self) -> None:
        self.here.sendall(b"1")
        self.there.recv(1)


class Leaving:
    """Ends the program inside the reduction."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: object = None) -> Array:
        sys.exit(0)


class Daemons:
    """Starts processes in a session of their own, whose parent has ended: one forked, and one that executes a program.
    Returns their ids.
    """

    def __init__(self) -> None:
        told, tell = os.pipe()
        if not os.fork():
            os.setsid()
            daemon = os.fork()
            if daemon:
                program = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"])
                os.write(tell, struct.pack("qq", daemon, program.pid))
                os._exit(0)
            signal.pause()
        os.wait()
        self.numbers = struct.unpack("qq", os.read(told, 16))

    def all_reduce(self, array: Array, op: str = "sum", *, group: object = None) -> Array:
        return np.array(self.numbers, array.dtype)


def connect_with_daemons(context: RankContext) -> Facets:
    return Facets(rank=context.rank, world_size=context.world_size, collectives=Daemons())


def connect_exchanging(context: RankContext) -> Facets:
    return Facets(rank=context.rank, world_size=context.world_size, collectives=Exchanging())


def connect_leaving(context: RankContext) -> Facets:
    return Facets(rank=context.rank, world_size=context.world_size, collectives=Leaving())


def connect(context: RankContext) -> Facets:
    return Facets(rank=context.rank, world_size=context.world_size, collectives=Alone(context.rank))


def connect_importing(context: RankContext) -> Facets:
    return Facets(rank=context.rank, world_size=context.world_size, collectives=Importing())


class Forking:
    """Starts a process that never ends and holds all inherited resources; returns its id."""

    def __init__(self) -> None:
        self.child = os.fork()
        while not self.child:
            signal.pause()

    def all_reduce(self, array: Array, op: str = "sum", *, group: object = None) -> Array:
        return np.full_like(array, self.child)


def connect_forking(context: RankContext) -> Facets:
    return Facets(rank=context.rank, world_size=context.world_size, collectives=Forking())


def connect_as_world_of_one(context: RankContext) -> Facets:
    return Facets(rank=0, world_size=1, collectives=object())


def connect_raises(context: RankContext) -> Facets:
    if context.rank == 1:
        raise RuntimeError("no network card")
    return connect(context)


def connect_hangs(context: RankContext) -> Facets:
    if context.rank == 1:
        Alone(1).wait_for_ever()
    return connect(context)


def connect_stops(context: RankContext) -> Facets:
    if context.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return connect(context)


def connect_exits(context: RankContext) -> Facets:
    if context.rank == 1:
        os._exit(3)
    return connect(context)


_promises = TYPICAL.of_facets("collectives").but(operations=frozenset({"all_reduce"}))
adapter = Adapter("misbehaving", connect, _promises)
importing = Adapter("importing", connect_importing, _promises)
forking = Adapter("forking", connect_forking, _promises)
with_daemons = Adapter("with_daemons", connect_with_daemons, _promises)
exchanging = Adapter("exchanging", connect_exchanging, _promises)
leaving = Adapter("leaving", connect_leaving, _promises)
world_of_one = Adapter("world_of_one", connect_as_world_of_one, _promises)
raising = Adapter("raising", connect_raises, _promises)
hanging = Adapter("hanging", connect_hangs, _promises)
stopping = Adapter("stopping", connect_stops, _promises)
exiting = Adapter("exiting", connect_exits, _promises)
