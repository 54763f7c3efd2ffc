"""The lower part of every stand-alone script: what is below the line is copied into it as it stands.

It uses the standard library and NumPy only. The upper part of a script defines what is named here above the line.
"""

# The script imports these itself, and defines the constants.
from __future__ import annotations

import importlib
import os
import pickle
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

ADAPTER = ""
WORLD_SIZE = 1
START: list[str] = []
DEADLINE = 10.0


def program(rank: int, facets: Any) -> None: ...


# ------------------------------ the rest starts the ranks and compares; it is the same in every script of this kind

START_WITHIN = 60.0  # seconds, for imports and for the ranks to find each other
seen = {"compared": 0, "wrong": 0, "exchanges": 0}
handed_out: list[tuple[str, Any, Any]] = []


def expect(what: str, got: Any, want: Any, within: Any = None, *, bits: bool = False) -> None:
    """Print whether `got` is `want`, or, if `within` is given, off by no more than that. NaN is NaN; bits: 0 is not -0."""
    if got is None or want is None:
        tell(what, got is want, f"      got       {got}\n      should be {want}")
        return
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or (within is None and got.dtype != want.dtype):
        forms = [f"{in_a_line(array)}, {array.dtype}{list(array.shape)}" for array in (got, want)]
        tell(what, False, f"      got       {forms[0]}\n      should be {forms[1]}")
        return
    if within is None:
        right = (got == want) & (not bits or np.signbit(got) == np.signbit(want)) | ((got != got) & (want != want))
    else:
        right = (abs(got.astype("float64") - want) <= within) | (np.asarray(within) == np.inf)
    tell(what, right.all(), shown(got, want, ~right, within))


def shown(got: Any, want: Any, wrong: Any, within: Any) -> str:
    """Small arrays as a whole, large ones at the first few wrong elements."""
    text = f"      {np.sum(wrong)} of {wrong.size} elements are wrong" if wrong.size > 1 else ""
    if got.size > 16:
        places = np.flatnonzero(wrong)[:6]
        text += f", the first at {', '.join(map(str, places))} of the flat array"
        got, want, within = (
            None if x is None else np.broadcast_to(x, wrong.shape).flat[places] for x in (got, want, within)
        )
    rows = [text] * bool(text) + [f"      got       {in_a_line(got)}", f"      should be {in_a_line(want)}"]
    return "\n".join(rows + ([] if within is None else [f"      within    {in_a_line(within)}"]))


def in_a_line(array: Any) -> str:
    """All digits that tell a number from its neighbours, without line breaks."""
    return " ".join(np.array2string(np.asarray(array), separator=", ", floatmode="unique", threshold=20).split())


def tell(what: str, right: bool, otherwise: str = "") -> None:
    """One line if it is right, more if it is not."""
    seen["compared"] += 1
    seen["wrong"] += not right
    say(f"{what}: ok" if right else f"{what}: WRONG\n{otherwise}".rstrip())


def say(text: str) -> None:
    sys.stdout.write(f"rank {place()[0]}: {text}\n")
    sys.stdout.flush()


def expect_untouched(what: str, got: Any, argument: Any, given: Any) -> None:
    """A collective leaves its argument alone, and hands out an array of its own, now and later. Says nothing if so."""
    if argument.tobytes() != given.tobytes():
        tell(
            f"the argument of {what} afterwards",
            False,
            f"      got       {in_a_line(argument)}\n      should be {in_a_line(given)}, as before",
        )
    if np.may_share_memory(got, argument):
        tell(f"the result of {what}", False, "      it shares memory with the argument, but should be a new array")
    else:
        argument[...] = np.nan if argument.dtype.kind in "fc" else 113  # it is the caller's again
    handed_out.append((what, got, np.array(got)))


def expect_same_bits_on_all_ranks(arrays: Any, names: list[str]) -> None:
    """Rank 0 says so."""
    mine = {name: None if arrays[name] is None else np.asarray(arrays[name]).tobytes() for name in names}
    everyone = from_all_ranks(mine)
    for name in names if place()[0] == 0 else []:
        differ = [rank for rank, other in enumerate(everyone) if other[name] != mine[name]]
        tell(f"{name} has the same bits on all ranks", not differ, f"      rank 0 and rank {differ} differ")


def from_all_ranks(value: Any) -> list[Any]:
    """Every rank's value, by files: nothing of the implementation is used. All ranks must be on one machine."""
    share(value)
    files = [folder() / f"{seen['exchanges']}-{rank}" for rank in range(WORLD_SIZE)]
    while not all(file.exists() for file in files):
        time.sleep(0.005)  # not for ever: end_if_stuck() looks after that
    return [pickle.loads(file.read_bytes()) for file in files]


def share(value: Any) -> None:
    seen["exchanges"] += 1
    folder().mkdir(exist_ok=True)
    file = folder() / f"{seen['exchanges']}-{place()[0]}"
    file.with_suffix(".part").write_bytes(pickle.dumps(value))
    file.with_suffix(".part").replace(file)


def folder() -> Path:
    """The ranks know each other by their parent: this script, mpirun or torchrun."""
    return Path(tempfile.gettempdir(), f"{Path(__file__).stem}-{os.getppid()}")


def place() -> tuple[int, int]:
    """Rank and world size, as torchrun, Open MPI, MPICH or start_all() says; -1 if nobody does."""
    names = [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("RANK", "WORLD_SIZE")]
    for rank, size in names[::-1] if "TORCHELASTIC_RUN_ID" in os.environ else names:
        if rank in os.environ:
            return int(os.environ[rank]), int(os.environ.get(size, "1"))
    return -1, 0


def start_all() -> int:
    """Start every rank, and wait for all: 0 if all of them are content."""
    if START:
        return subprocess.call([*START, sys.executable, *sys.argv])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    world = {"WORLD_SIZE": str(WORLD_SIZE), "LOCAL_WORLD_SIZE": str(WORLD_SIZE), "MASTER_PORT": port}
    world = {**os.environ, **world, "MASTER_ADDR": "127.0.0.1"}
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
    address, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
    world = {"world_size": size, "local_rank": rank, "local_world_size": size}
    try:
        context = types.SimpleNamespace(rank=rank, **world, master_addr=address, master_port=port, engine="none")
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
    if close is not None:
        close()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
