"""How a script starts its ranks, finds the implementation, and ends. Below the line it is copied into every script."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from pathlib import Path
from typing import Any

import numpy as np

from .comparing import expect, folder, from_all_ranks, handed_out, in_a_line, place, say, seen, share, tell

# a script has its own of these
ADAPTER = ""
WORLD_SIZE = 1
START: list[str] = []
DEADLINE = 10.0


def program(rank: int, facets: Any) -> None: ...


# ------------------------------ the rest starts the ranks and compares; it is the same in every script of this kind

START_WITHIN = 60.0  # seconds, for imports and for the ranks to find each other


def start_all() -> int:
    """Start every rank, and wait for all: 0 if all of them are content."""
    if START:
        return subprocess.call([*START, sys.executable, *sys.argv])
    world = {**os.environ, "WORLD_SIZE": str(WORLD_SIZE), "LOCAL_WORLD_SIZE": str(WORLD_SIZE)}
    places = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(WORLD_SIZE)]
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**world, **mine}) for mine in places]
    end = time.monotonic() + START_WITHIN + DEADLINE + 5
    for rank, process in enumerate(ranks):
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            print(f"rank {rank}: WRONG, it hung and was killed")
        if process.wait() < 0:
            print(f"rank {rank} was ended by {signal.Signals(-process.returncode).name}")
    shutil.rmtree(Path(tempfile.gettempdir(), f"{Path(__file__).stem}-{os.getpid()}"), ignore_errors=True)
    return int(any(process.returncode for process in ranks))


def free_port() -> int:
    """One that torchrun's agent, say, does not have: the ranks meet at rank 0's."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def the_adapter() -> Any:
    """The object that ADAPTER names, or the one named on the command line: module:attribute or file.py:attribute."""
    name, _, attribute = (sys.argv[1] if len(sys.argv) > 1 else ADAPTER).rpartition(":")
    sys.path.insert(0, str(Path(name).parent if name.endswith(".py") else Path.cwd()))
    try:
        importlib.import_module("ddpcheck")  # where it is installed, adapters may use more of it
    except ImportError:
        stand_in_for_ddpcheck()
    return getattr(importlib.import_module(Path(name).stem if name.endswith(".py") else name), attribute)


def stand_in_for_ddpcheck() -> None:
    """An adapter needs Adapter, Capabilities and Facets of ddpcheck; all that they do is to keep what they are given."""

    class Kept:
        def __init__(self, *words: Any, **more: Any) -> None:
            self.__dict__.update(zip(("name", "connect", "capabilities"), words, strict=False), **more)

    module = types.ModuleType("ddpcheck")
    module.__getattr__ = lambda name: Kept  # type: ignore[method-assign]  # a module's own, PEP 562
    launchers = [f"ddpcheck.launchers.{name}" for name in ("mpi", "processes", "torchrun")]
    for name in ("ddpcheck", "ddpcheck.adapter", "ddpcheck.capabilities", "ddpcheck.launchers", *launchers):
        sys.modules[name] = module


def end_if_stuck(doing: str, seconds: float) -> threading.Timer:
    """Look after this process: a rank that hangs says where, and ends."""
    main_thread = threading.get_ident()

    def end() -> None:
        stack = "".join(traceback.format_stack(sys._current_frames()[main_thread])[-4:])
        say(f"WRONG, it hangs in {doing}; ended after {seconds:g} s. It stands here:\n{stack}")
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


def main() -> int:
    rank, size = place()
    if rank < 0:
        return start_all()
    if size != WORLD_SIZE:
        sys.exit(f"this script is for {WORLD_SIZE} ranks, but was started as {size}")
    timer = end_if_stuck("start-up", START_WITHIN)
    world = {"world_size": size, "local_rank": rank, "local_world_size": size}
    port = from_all_ranks(free_port())[0]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "False"}
    os.environ.update(meeting, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
    try:
        context = types.SimpleNamespace(rank=rank, **world, master_addr="127.0.0.1", master_port=port, engine="none")
        facets = the_adapter().connect(context)
        if (facets.rank, facets.world_size) != (rank, size):
            expect("rank and world size that the implementation sees", (facets.rank, facets.world_size), (rank, size))
        timer.cancel()
        timer = end_if_stuck("program()", DEADLINE)
        program(rank, facets)
        for what, got, copy in handed_out:
            if np.asarray(got).tobytes() != copy.tobytes():
                tell(
                    f"the result of {what} at the end",
                    False,
                    f"      it was {in_a_line(copy)}\n      now it is {in_a_line(got)}",
                )
    except Exception:
        say(f"WRONG, it raised an error\n{traceback.format_exc()}")
        timer.cancel()
        time.sleep(1)  # for the others to say what they see, before mpirun or torchrun ends them
        os._exit(1)
    ranks = from_all_ranks(dict(seen))
    wrong = sum(found["wrong"] for found in ranks)
    share("read")
    if rank == 0:
        total = sum(found["compared"] for found in ranks)
        print(f"{'WRONG' if wrong else 'ok'}: {wrong} of {total} comparisons failed", flush=True)
        seen["exchanges"] -= 1
        from_all_ranks("read")
        shutil.rmtree(folder(), ignore_errors=True)
    timer.cancel()
    close = getattr(facets, "close", None)
    if close is not None and "closed" not in seen:
        close()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
