"""The start of a script's ranks, the search for the implementation, and the end. The part below the line is copied into
scripts.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from .comparison import expect, folder, from_all_ranks, handed_out, in_a_line, place, say, seen, share, tell

# each script has its own values of these
ADAPTER = ""
WORLD_SIZE = 1
HOSTS = [1]
START: list[str] = []
METHOD = ""
DEADLINE = 10.0


def program(rank: int, facets: Any) -> None: ...


# ------------------------------ the rest starts the ranks and compares; it is the same in every script of this kind

HASH_SEEDS = ("20", "235")  # with these seeds sets of two usual names have different orders
START_WITHIN = 60.0  # seconds for imports, and for the ranks to meet


def start_all() -> int:
    """Start every rank, and wait for all: 0 if all succeed."""
    if START:
        return subprocess.call([*START, sys.executable, *sys.argv])
    os.environ.update(WORLD_SIZE=str(WORLD_SIZE), LOCAL_WORLD_SIZE=str(WORLD_SIZE), STARTED_BY=str(os.getpid()))
    ranks = started_by_multiprocessing() if METHOD else started_one_by_one()
    end = time.monotonic() + START_WITHIN + DEADLINE + 5
    statuses = []
    for rank, process in enumerate(ranks):
        status = status_within(process, max(0.0, end - time.monotonic()))
        if status is None:
            process.kill()
            print(f"rank {rank}: WRONG, it hung and was killed")
            status = status_within(process, 5.0) or 1
        if status < 0:
            print(f"rank {rank} was ended by {signal.Signals(-status).name}")
        statuses.append(status)
    shutil.rmtree(folder(), ignore_errors=True)
    return int(any(statuses))


def started_one_by_one() -> list[Any]:
    return [subprocess.Popen([sys.executable, *sys.argv], env=os.environ | of_rank(rank)) for rank in range(WORLD_SIZE)]


def of_rank(rank: int) -> dict[str, str]:
    """The variables of a rank; neighbours have different hash seeds."""
    seed = os.environ.get("PYTHONHASHSEED", HASH_SEEDS[rank % len(HASH_SEEDS)])
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONHASHSEED": seed}


def started_by_multiprocessing() -> list[Any]:
    """As torch.multiprocessing.spawn, or a script that forks, does: the adapter is imported before the ranks start."""
    import_all()
    before, ranks = dict(os.environ), []
    for rank in range(WORLD_SIZE):
        process: Any = multiprocessing.get_context(METHOD).Process(target=one_rank, args=(rank,))  # type: ignore[attr-defined]
        if METHOD == "spawn":  # a new interpreter, which reads it at its start
            os.environ["PYTHONHASHSEED"] = of_rank(rank)["PYTHONHASHSEED"]
        process.start()
        os.environ.clear()
        os.environ.update(before)
        ranks.append(process)
    return ranks


def one_rank(rank: int) -> None:
    import_all()  # already done in a forked rank
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    sys.exit(main())


def import_all() -> None:
    with suppress(Exception):  # the rank that needs it will report the error
        for name in getattr(the_adapter(), "requires", ()):
            importlib.import_module(name)


def status_within(process: Any, seconds: float) -> int | None:
    """The exit status; None if it runs for longer."""
    with suppress(subprocess.TimeoutExpired):
        process.join(seconds) if METHOD else process.wait(seconds)
    status: int | None = process.exitcode if METHOD else process.returncode
    return status


def free_port() -> int:
    """A free port, different from that of an agent such as torchrun's: the ranks meet at rank 0's."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def the_adapter() -> Any:
    """The object that ADAPTER names, or the one named on the command line: module:attribute or file.py:attribute."""
    name, _, attribute = (sys.argv[1] if len(sys.argv) > 1 else ADAPTER).rpartition(":")
    sys.path.insert(0, str(Path(name).parent if name.endswith(".py") else Path.cwd()))
    try:
        importlib.import_module("ddpcheck")  # if installed, adapters may use more of it
    except ImportError:
        stand_in_for_ddpcheck()
    return getattr(importlib.import_module(Path(name).stem if name.endswith(".py") else name), attribute)


def stand_in_for_ddpcheck() -> None:
    """Replaces ddpcheck: an adapter needs Adapter, Facets and promises, which here only keep their arguments."""

    class Kept:
        def __init__(self, *words: Any, **more: Any) -> None:
            self.__dict__.update(zip(("name", "connect", "capabilities"), words, strict=False), **more)

        def but(self, *words: Any, **more: Any) -> Any:
            return self

        of_facets = but

    module = types.ModuleType("ddpcheck")
    # the module's own __getattr__, PEP 562
    module.__getattr__ = lambda name: Kept() if name.isupper() else Kept  # type: ignore[method-assign]
    launchers = [f"ddpcheck.launchers.{name}" for name in ("mpi", "multiprocess", "processes", "torchrun")]
    for name in ("ddpcheck", "ddpcheck.contract.adapter", "ddpcheck.contract", "ddpcheck.launchers", *launchers):
        sys.modules[name] = module


def end_if_stuck(doing: str, seconds: float) -> threading.Timer:
    """Watch this process: a hung rank prints its stack, and ends."""
    main_thread = threading.get_ident()

    def end() -> None:
        frames = traceback.extract_stack(sys._current_frames()[main_thread])
        own = max((at for at, frame in enumerate(frames) if frame.filename == __file__), default=0)
        stack = "".join(traceback.format_list(frames[own:]))
        say(f"WRONG, it hangs in {doing}; ended after {seconds:g} s. Its stack:\n{stack}")
        give_up()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


def give_up() -> NoReturn:
    """End this rank at once. start_all() waits for the others, and removes the folder."""
    if "STARTED_BY" not in os.environ:
        time.sleep(1)  # for the output of the others, before mpirun or torchrun ends them
        shutil.rmtree(folder(), ignore_errors=True)
    os._exit(1)


def main() -> int:
    rank, size = place()
    if rank < 0:
        return start_all()
    if size != WORLD_SIZE:
        sys.exit(f"this script is for {WORLD_SIZE} ranks, but was started as {size}")
    timer = end_if_stuck("start-up", START_WITHIN)
    host, first = next((host, sum(HOSTS[:host])) for host in range(len(HOSTS)) if rank < sum(HOSTS[: host + 1]))
    local_rank, local_size = rank - first, HOSTS[host]
    world = {"world_size": size, "local_rank": local_rank, "local_world_size": local_size}
    port = from_all_ranks(free_port())[0]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "False"}
    os.environ.update(meeting, RANK=str(rank), WORLD_SIZE=str(size), GROUP_RANK=str(host))
    os.environ.update(LOCAL_RANK=str(local_rank), LOCAL_WORLD_SIZE=str(local_size))
    try:
        context = types.SimpleNamespace(rank=rank, **world, master_addr="127.0.0.1", master_port=port, engine="none")
        facets = the_adapter().connect(context)
        if (facets.rank, facets.world_size) != (rank, size):
            expect(
                "rank and world size that the implementation reports", (facets.rank, facets.world_size), (rank, size)
            )
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
        give_up()
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
