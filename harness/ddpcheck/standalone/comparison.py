"""Comparison and reports of a script, and exchange of values between ranks. The part below the line is copied into
scripts.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

WORLD_SIZE = 1  # a script has its own

# ------------------------------ the rest starts the ranks and compares; it is the same in every script of this kind

seen: dict[str, int] = {"compared": 0, "wrong": 0, "exchanges": 0}
handed_out: list[tuple[str, Any, Any]] = []
shared: dict[str, Any] = {}  # arrays that several calls use


def expect(what: str, got: Any, want: Any, within: Any = None, *, bits: bool = False) -> None:
    """Print whether `got` equals `want`, or is within `within` of it, if given. NaN equals NaN; bits: 0 differs from
    -0.
    """
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
    """Small arrays in full, large ones at the first few wrong elements."""
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
    """All digits that distinguish a number from its neighbours, without line breaks."""
    return " ".join(np.array2string(np.asarray(array), separator=", ", floatmode="unique", threshold=20).split())


def tell(what: str, right: bool, otherwise: str = "") -> None:
    """One line if it is right, more if it is wrong."""
    seen["compared"] += 1
    seen["wrong"] += not right
    say(f"{what}: ok" if right else f"{what}: WRONG\n{otherwise}".rstrip())


def say(text: str) -> None:
    sys.stdout.write(f"rank {place()[0]}: {text}\n")
    sys.stdout.flush()


def expect_unchanged(what: str, now: Any, before: Any) -> None:
    """Print only if the array has changed."""
    if now.tobytes() != before.tobytes():
        tell(
            f"{what}, afterwards",
            False,
            f"      is        {in_a_line(now)}\n      should be {in_a_line(before)}, as before",
        )


def expect_untouched(what: str, got: Any, argument: Any, given: Any) -> None:
    """A collective must not change its argument, and must return a new array. Prints only if it did not."""
    expect_unchanged(f"the argument of {what}", argument, given)
    if np.may_share_memory(got, argument):
        tell(f"the result of {what}", False, "      it shares memory with the argument, but should be a new array")
    elif argument.flags.writeable and not any(argument is each for each in shared.values()):
        argument[...] = np.nan if argument.dtype.kind in "fc" else 113  # the argument is the caller's again
    handed_out.append((what, got, np.array(got)))


def expect_same_bits_on_all_ranks(name: str, array: Any) -> None:
    """Rank 0 prints the result."""
    mine = np.asarray(array).tobytes().hex()
    differ = [rank for rank, other in enumerate(from_all_ranks(mine)) if other != mine]
    if place()[0] == 0:
        tell(
            f"{name} has the same bits on all ranks",
            not differ,
            f"      other bits than rank 0: rank {', '.join(map(str, differ))}",
        )


def from_all_ranks(value: Any) -> list[Any]:
    """Every rank's value, by files, without the implementation. All ranks must be on one machine."""
    share(value)
    files = [folder() / f"{seen['exchanges']}-{rank}" for rank in range(WORLD_SIZE)]
    while not all(file.exists() for file in files):
        time.sleep(0.005)  # not for ever: end_if_stuck() limits it
    return [json.loads(file.read_text()) for file in files]


def share(value: Any) -> None:
    seen["exchanges"] += 1
    folder().mkdir(mode=0o700, exist_ok=True)
    file = folder() / f"{seen['exchanges']}-{place()[0]}"
    file.with_suffix(".part").write_text(json.dumps(value, default=lambda number: number.item()))
    file.with_suffix(".part").replace(file)


def folder() -> Path:
    """A folder named after the ranks' common parent: this script, mpirun or torchrun. No other user can write there."""
    parent = int(os.environ.get("STARTED_BY", os.getppid()))
    return own_folder() / f"{Path(__file__).stem}-{parent}{since(parent)}"


def own_folder() -> Path:
    """A folder that only this user can enter; the script ends if another user has taken its name."""
    found = Path(tempfile.gettempdir(), f"ddpcheck-{os.geteuid()}")
    found.mkdir(mode=0o700, exist_ok=True)
    status = found.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        sys.exit(
            f"{found} should be a folder that only this user can enter; remove it, or set TMPDIR to another folder"
        )
    return found


def since(process: int) -> str:
    """The start time of a process, where the system reports it: an earlier process with this id may have left a
    folder.
    """
    try:
        return "-" + Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def place() -> tuple[int, int]:
    """Rank and world size from torchrun, Open MPI, MPICH or start_all(); -1 if they are not set."""
    names = [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("RANK", "WORLD_SIZE")]
    for rank, size in names[::-1] if "TORCHELASTIC_RUN_ID" in os.environ else names:
        if rank in os.environ:
            return int(os.environ[rank]), int(os.environ.get(size, "1"))
    return -1, 0
