"""Readers of outside data: each takes any bytes, and reads them or raises a declared exception."""

from __future__ import annotations

import atexit
import json
import shutil
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from ddpcheck.audit.evidence import Evidence
from ddpcheck.cli.number_options import COUNT, SECONDS, world_sizes
from ddpcheck.ranks.authentication import AuthenticatedListener
from ddpcheck.ranks.channel import Channel, ChannelClosed
from ddpcheck.storage.codec import decode
from ddpcheck.storage.failing_jobs import Failure
from ddpcheck.storage.files import UnreadableFile
from ddpcheck.storage.results import Results
from ddpcheck.training import checkpoint
from ddpcheck.training.datasets import DataError, read_idx
from ddpcheck.training.rank_messages import TrainingFailed
from ddpcheck_benchmarks.gate.record import Record
from ddpcheck_benchmarks.hosts.link import Fabric
from ddpcheck_benchmarks.projection import measurements
from ddpcheck_benchmarks.sizes import sizes
from ddpcheck_implementations.numpy_sockets.connections import wire_format
from ddpcheck_implementations.numpy_sockets.connections.deadlock_detector import DeadlockDetector
from ddpcheck_implementations.numpy_sockets.connections.peer import Peer, Traffic
from ddpcheck_implementations.numpy_sockets.errors import CommunicationError, RendezvousError
from ddpcheck_implementations.numpy_sockets.rendezvous import protocol
from ddpcheck_reports import result_files
from fuzz.measured import RUN

_LONGEST = 1 << 16
_LONGEST_DATAGRAM = 60_000
_BENCH = {"benchmarks": [], "commit_info": {}, "datetime": ""}


@dataclass(frozen=True)
class Target:
    """read: the reader. declared: the exceptions by which it may refuse."""

    name: str
    read: Callable[[bytes], object]
    declared: tuple[type[BaseException], ...]

    def __call__(self, data: bytes) -> None:
        with suppress(*self.declared):
            self.read(data)


_folder: list[Path] = []


def _file(data: bytes, suffix: str = "") -> Path:
    if not _folder:
        _folder.append(Path(tempfile.mkdtemp(prefix="ddpcheck-fuzz-")))
        atexit.register(shutil.rmtree, _folder[0], ignore_errors=True)
    path = _folder[0] / f"file{suffix}"
    path.write_bytes(data)
    return path


def _frames(data: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(data[:_LONGEST])
        there.close()
        channel = Channel(here)
        while True:
            channel.receive()


def _knock(data: bytes) -> None:
    """A foreign client at the driver's socket, which then closes. It must not be accepted."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as stranger:
        listener.bind("")
        listener.listen()
        door = AuthenticatedListener(listener, "secret")
        stranger.connect(listener.getsockname())
        stranger.sendall(data[:_LONGEST])
        stranger.shutdown(socket.SHUT_WR)
        try:
            assert door.admit(5.0) is None
        finally:
            door.close()


def _message(data: bytes) -> None:
    """Another rank's message while one of four numbers is expected."""
    array = np.empty(4, np.float32)
    header = wire_format.pack("all_reduce", array, "sum", wire_format.group_code((0, 1)), 3)
    here, there = socket.socketpair()
    with here, there:
        there.sendall(data[:_LONGEST])
        there.close()
        Peer(here, 0, 1, 1.0, Traffic(), DeadlockDetector(0), oversubscribed=True).receive(header, array)


def _datagram(data: bytes) -> None:
    """Data at the port of a waiting rank, after the right token."""
    detector = DeadlockDetector(0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.bind(("127.0.0.1", 0))
        place = port.getsockname()
        detector.open(port, b"t" * 16, {1: (place, b"t" * 16)}, {})
        detector.start_wait(wire_format.pack_abort(0), lambda: True, (1,))
        detector.poll()
        port.sendto(b"t" * 16 + data[:_LONGEST_DATAGRAM], place)
        detector.poll()


def _table(data: bytes) -> None:
    """The message of a foreign program that answers in rank 0's place."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    with here, there:
        there.sendall(data[:_LONGEST])
        there.shutdown(socket.SHUT_WR)
        protocol._introduce(protocol.RendezvousConfig(2, 3, "127.0.0.1", 1), here, 2)


def _archive(data: bytes) -> None:
    """The raw times beside a file of bench."""
    archive = _file(data, ".npz")
    result_files.read([_file(json.dumps(_BENCH | {"ddpcheck": RUN | {"archive": archive.name}}).encode())])


def _idx(data: bytes) -> None:
    for suffix in ("", ".gz"):
        for dimensions in (1, 3):
            with suppress(DataError):
                read_idx(_file(data, suffix), dimensions=dimensions)


def _options(data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    context, parameter = click.Context(click.Command("x")), click.Option(["-x"])
    readers: tuple[Callable[[], object], ...] = (
        lambda: world_sizes(context, parameter, text),
        lambda: COUNT.convert(text, parameter, context),
        lambda: SECONDS.convert(text, parameter, context),
        lambda: sizes(text),
        lambda: Fabric.of(text, 2),
    )
    for read in readers:
        with suppress(ValueError, click.UsageError):
            read()


TARGETS = {
    target.name: target
    for target in (
        Target("control_frames", _frames, (ChannelClosed,)),
        Target("control_values", decode, (ValueError,)),
        Target("knock", _knock, (TimeoutError,)),
        Target("message", _message, (CommunicationError,)),
        Target("datagram", _datagram, (CommunicationError,)),
        Target("rendezvous", _table, (RendezvousError, OSError)),
        Target("failure", lambda data: Failure.load(_file(data)), (UnreadableFile,)),
        Target("results", lambda data: Results.load(_file(data)), (UnreadableFile,)),
        Target("report", lambda data: result_files.read([_file(data)]), (UnreadableFile,)),
        Target("archive", _archive, (UnreadableFile,)),
        Target("projection", lambda data: measurements.load([_file(data)]), (UnreadableFile,)),
        Target("audit_record", lambda data: Evidence.load(_file(data)), (UnreadableFile,)),
        Target("gate_record", lambda data: Record.load_from(_file(data)), (UnreadableFile,)),
        Target("checkpoint", lambda data: checkpoint.load(_file(data)), (TrainingFailed,)),
        Target("idx", _idx, ()),
        Target("options", _options, ()),
    )
}
