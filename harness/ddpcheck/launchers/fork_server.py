"""A process that has imported the modules that every rank needs, and forks one rank after the other:

    python -m ddpcheck.launchers.fork_server SOCKET PROGRAM [MODULE ...]

Importing NumPy takes a tenth of a second and torch seconds; a fork takes milliseconds. Only the program, a module whose
main() each fork runs, and the named modules are imported here: each rank imports the adapter itself, under its own
environment. Requests come through the socket (fork_servers.py). When the socket closes, the driver has ended, and this
process ends, too.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from .process_handles import DRIVER

HEADER = struct.Struct("I")
STATUS = NUMBER = struct.Struct("i")
FORKED, UNSAFE = b"f", b"u"


def serve(requests: socket.socket) -> tuple[dict[str, Any], int] | None:
    """Fork at every request, and report how each fork ended.

    Returns the request and the output file in the forked process, and None after the driver has closed the socket.
    """
    poller = select.poll()
    poller.register(requests, select.POLLIN)
    running: dict[int, tuple[int, int]] = {}  # pidfd: pid, pipe for its exit status
    while True:
        for file, _ in poller.poll():
            if file in running:
                poller.unregister(file)
                _tell_end(file, *running.pop(file))
                continue
            header, output, _, _ = socket.recv_fds(requests, HEADER.size, 1, socket.MSG_CMSG_CLOEXEC)
            if not header:
                return None
            (length,) = HEADER.unpack(header)
            request = json.loads(requests.recv(length, socket.MSG_WAITALL))
            if _threads() > 1:  # locks of other threads would stay locked in the fork
                requests.send(UNSAFE)
                os.close(output[0])
                continue
            told, tell = os.pipe()
            pid = os.fork()
            if not pid:
                for mine in (requests.detach(), told, tell, *running, *(pipe for _, pipe in running.values())):
                    os.close(mine)
                return request, output[0]
            process = os.pidfd_open(pid)
            socket.send_fds(requests, [FORKED, NUMBER.pack(pid)], [process, told])
            os.close(told)
            os.close(output[0])
            running[process] = pid, tell
            poller.register(process, select.POLLIN)


def _tell_end(process: int, pid: int, tell: int) -> None:
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        os.write(tell, STATUS.pack(os.waitstatus_to_exitcode(status)))
    os.close(process)
    os.close(tell)


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def become_rank(request: dict[str, Any], output: int, standard_path: list[str], server: int) -> None:
    """Give this fork the arguments, environment and import path of a freshly started interpreter.

    server: the process id of the fork server, which ends with the driver: a rank that ends with its parent ends with it.
    """
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    if DRIVER in os.environ:
        os.environ[DRIVER] = str(server)
    first = [] if request["variables"].get("PYTHONSAFEPATH") else [request["folder"]]
    sys.path[:] = [*first, *_entries(request["variables"].get("PYTHONPATH", "")), *standard_path]
    sys.argv = request["arguments"]
    if "numpy.random" in sys.modules:
        # otherwise every fork would draw the same numbers; `random` reseeds itself after a fork
        sys.modules["numpy.random"].seed()


def _entries(path: str) -> list[str]:
    return path.split(os.pathsep) if path else []


_USED_BY_ALL = ("numpy.random", "encodings.idna")
"""Modules that a rank would import in its first Job, and to resolve an address: half of the time of a start."""


def _let_others_finish() -> None:
    """A waking rank does not preempt the rank that woke it, if ranks share cores.

    The preempted rank may hold a lock that a thread of the waking rank polls, as in Gloo. An all-reduce of two ranks on
    two cores then takes four times as long.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main() -> None:
    file, name, *modules = sys.argv[1:]
    own = {str(Path.cwd()), *_entries(os.environ.get("PYTHONPATH", ""))}
    standard_path = [entry for entry in sys.path if entry not in own]
    gc.disable()  # imported modules stay alive, and garbage collection would take a sixth of the time
    program = importlib.import_module(name)
    for module in (*_USED_BY_ALL, *modules):
        with suppress(Exception):  # the rank that needs the module will report the error
            importlib.import_module(module)
    gc.freeze()
    gc.enable()
    _let_others_finish()
    server = os.getpid()
    found = serve(socket.socket(fileno=int(file)))
    if found is not None:
        become_rank(*found, standard_path, server)
        program.main()


if __name__ == "__main__":
    main()
