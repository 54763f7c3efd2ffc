"""The process that starts ranks with Python's multiprocessing, and reports their ends to the driver (multiprocess.py):

    python -m ddpcheck.launchers.multiprocess_parent METHOD SOCKET WORLD_SIZE HASH_SEEDS SCRATCH COMMAND...

Like the main module of a training script, it imports the adapter and its requirements before it starts ranks. Forked ranks
inherit the imported modules; spawned ones, and those of a fork server, import the adapter again, before they know their rank.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess

from ..ranks.rank_interpreter import search_working_folder_last
from .process_handles import end_with_parent, open_process

ENDED = struct.Struct("ii")
"""The message to the driver for each rank that ends: the rank, and its exit status."""
KILL = b"k"
_WORKER = "ddpcheck.worker"
_TAKE_AN_ADAPTER = (_WORKER, "ddpcheck.training")
_CHECK_MILLISECONDS = 20  # on systems without process handles
_LEAVE_WITHIN = 2.0
_OWN: list[int] = []  # descriptors that a forked rank closes


def main() -> None:
    method, file, world_size, seeds, scratch, *command = sys.argv[1:]
    driver = socket.socket(fileno=int(file))
    driver.set_inheritable(False)
    search_working_folder_last()
    _OWN.append(driver.fileno())
    import_adapter(command)
    ranks: list[BaseProcess] = []
    status = 0
    try:
        _start(ranks, method, int(world_size), seeds.split(","), scratch, command)
        _watch(ranks, driver)
    except Exception:  # the system refuses a process or a file; the ranks that run would wait for the others
        for process in ranks:
            process.kill()  # and no join(), which may open a file
        traceback.print_exc()
        status = 1
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)  # the driver may have ended
    sys.stderr.flush()
    os._exit(status)  # do not wait for threads that the adapter started at import


def import_adapter(command: Sequence[str]) -> None:
    """Import the program and its adapter. If one cannot be imported, each rank reports the error itself."""
    with suppress(Exception):
        if _module(command) in _TAKE_AN_ADAPTER:
            from ..running.adapter_lookup import resolve

            adapter, _ = resolve(command[3])
            for name in (*adapter.requires, _WORKER):
                importlib.import_module(name)


def _start(
    ranks: list[BaseProcess], method: str, world_size: int, seeds: Sequence[str], scratch: str, command: list[str]
) -> None:
    """Start all ranks, and append each to `ranks` at once."""
    context = multiprocessing.get_context(method)
    if scratch:  # the folder holds the fork server's socket, and goes however this process ends
        tempfile.tempdir = scratch
    for rank in range(world_size):
        if method == "spawn":  # each rank is a new interpreter
            os.environ["PYTHONHASHSEED"] = seeds[rank % len(seeds)]
        starter = 0 if method == "forkserver" else os.getpid()
        made = context.Process(target=rank_main, args=(rank, command, starter))  # type: ignore[attr-defined]
        made.start()
        ranks.append(made)
    if scratch:
        tempfile.tempdir = None


def rank_main(rank: int, command: list[str], starter: int) -> None:
    """Run one rank, in its own process."""
    _end_with(starter)
    while _OWN:
        os.close(_OWN.pop())
    import_adapter(command)  # already imported in a forked rank
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    module = _module(command)
    if module is None:
        os.execvp(command[0], command)
    sys.argv = command[2:]
    if module == _WORKER:
        importlib.import_module(module).main()
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _module(command: Sequence[str]) -> str | None:
    """Return MODULE of a command `python -m MODULE ...` of this interpreter; None for another command."""
    return command[2] if [*command[:2]] == [sys.executable, "-m"] and len(command) > 3 else None


def _end_with(starter: int) -> None:
    """End this process when its parent ends. starter: the process that forked it, or 0 for a fork server."""
    if starter and end_with_parent(starter):
        return
    parent = multiprocessing.parent_process()

    def end() -> None:
        if parent is not None:
            parent.join()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=end, daemon=True, name="ddpcheck-parent").start()  # the server lives as long as its ranks


def _watch(ranks: Sequence[BaseProcess], driver: socket.socket) -> None:
    """Report the end of each rank to the driver, until all have ended, or the driver sends KILL or has ended."""
    poller = select.poll()
    poller.register(driver, select.POLLIN)
    handles = {rank: open_process(process.pid or 0) for rank, process in enumerate(ranks)}
    timeout = _CHECK_MILLISECONDS if None in handles.values() else None
    for handle in handles.values():
        if handle is not None:
            poller.register(handle, select.POLLIN)
    while handles:
        ready = {file for file, _ in poller.poll(timeout)}
        if driver.fileno() in ready:
            _end(ranks, at_once=_received(driver) == KILL)
            return
        for rank, handle in list(handles.items()):
            if handle in ready or (handle is None and ranks[rank].exitcode is not None):
                ranks[rank].join(1.0)  # a fork server reports the end slightly later
                code = ranks[rank].exitcode
                with suppress(OSError):
                    driver.sendall(ENDED.pack(rank, -signal.SIGKILL if code is None else code))
                if handle is not None:
                    poller.unregister(handle)
                del handles[rank]


def _received(driver: socket.socket) -> bytes:
    try:
        return driver.recv(1)
    except OSError:
        return b""


def _end(ranks: Sequence[BaseProcess], *, at_once: bool) -> None:
    """Give ranks that lost their driver time to remove their files."""
    limit = time.monotonic() + (0.0 if at_once else _LEAVE_WITHIN)
    for process in ranks:
        process.join(max(0.0, limit - time.monotonic()))
    for process in ranks:
        process.kill()
    for process in ranks:
        process.join(_LEAVE_WITHIN)


if __name__ == "__main__":
    main()
