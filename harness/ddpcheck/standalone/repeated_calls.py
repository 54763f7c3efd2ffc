"""Repeated operations, their effects on the process, and the end of an implementation, as plain calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..execution.process_resources import MANY
from ..job import Calls, Close, Make, Rounds
from ..operations.repeated_calls import PERIOD
from .text import NoScript, Text

Write = Callable[[Text, int, Any], None]

_FOOTPRINT = '''
def settings():
    """Settings of the program, which no call may change."""
    import gc, logging, random, sys, warnings

    torch = sys.modules.get("torch")
    return {
        "torch's generator": torch and torch.get_rng_state().tolist(),
        "random": random.getstate(),
        "numpy.random": np.random.get_state()[1].tobytes() + bytes(np.random.get_state()[2]),
        "the environment": dict(os.environ),
        "the working directory": os.getcwd(),
        "NumPy's handling of floating-point errors": np.geterr(),
        "the filters of warnings": list(warnings.filters),
        "the default timeout of sockets": socket.getdefaulttimeout(),
        "the garbage collector": gc.isenabled(),
        "the level, or handlers, of the root logger": (logging.root.level, list(logging.root.handlers)),
        "sys.stdout, or sys.stderr": (sys.stdout, sys.stderr),
        "the hook for uncaught exceptions": sys.excepthook,
        "the timer of alarms": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "the handlers of signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
    }


def held():
    """Numbers of bytes from malloc (if glibc), objects, threads, descriptors and child processes of this process."""
    import ctypes, gc, sys

    gc.collect()
    found, mallinfo = {}, getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is not None:
        fields = [(f"_{number}", ctypes.c_size_t) for number in range(10)]
        mallinfo.restype = type("mallinfo2", (ctypes.Structure,), {"_fields_": fields})
        heap = mallinfo()
        found = {"bytes": heap._4 + heap._7}  # mapped, and in use
    found["objects"] = sys.getallocatedblocks()
    if os.path.isdir("/proc/self/fd"):
        found |= {"threads": len(os.listdir("/proc/self/task")), "descriptors": len(os.listdir("/proc/self/fd"))}
        found["child processes"] = len(open(f"/proc/self/task/{os.getpid()}/children").read().split())
    return found
'''
_GRAIN = 32_000
"""The smallest growth in bytes per call that counts as a leak."""


def rounds(text: Text, position: int, op: Rounds, write: Write) -> None:
    """Lines for a Rounds. write: writes one of its operations."""
    kinds = ", ".join(dict.fromkeys(operation.kind for operation in op.operations))
    text.comment(position, f"{op.rounds} rounds of {op.times} times {kinds}: resources left behind")
    text.inputs.append(_FOOTPRINT)
    before, text.lines = text.lines, []
    for operation in op.operations:
        write(text, position, operation)
    inside, text.lines = text.lines, before
    text.judges = True
    text.add(
        "import random",
        "had = [held()]",
        f"for turn in range({op.rounds}):",
        "    random.random(), np.random.random_sample()  # so that an equal seed shows",
        '    "torch" in sys.modules and sys.modules["torch"].rand(1)',
        "    was = settings()",
        f"    for _ in range({op.times}):",
        *(f"        {line}" if line else "" for line in inside),
        "    handed_out.clear()  # the script's own",
        "    now = settings()",
        "    if turn == 1:  # the first round may change things once, as an import does",
        '        expect("settings that changed", [name for name in was if was[name] != now[name]], [])',
        "    was = now = None",
        "    time.sleep(0.2)  # for threads that are about to end",
        "    had.append(held())",
        f'judged = [name for name in had[1] if (name == "objects") == {op.times >= MANY}]',
        f'least = {{name: {max(1, op.times - 1)} * ({_GRAIN} if name == "bytes" else 1) for name in judged}}',
        "grown = {name: [b[name] - a[name] for a, b in zip(had[1:], had[2:])] for name in judged}",
        "left = {name: by for name, by in grown.items() if min(by) >= least[name]}",
        'say(f"more held after each round but the first: {left}")',
        'expect("left behind by every round", sorted(left), [])',
    )


def make(text: Text, position: int, op: Make) -> None:
    """Lines for a Make: settings must stay, and the generators must continue."""
    text.comment(position, f"{op.times} replicas, one after the other: their effects on the process")
    text.inputs.append(_FOOTPRINT)
    text.judges = True
    text.add(
        "import random",
        'generators = {"random", "numpy.random", "torch\'s generator"}',
        "states, others = [], []",
        f"for turn in range({op.times}):",
        "    for _ in range(rank + 1):  # so that an equal seed shows",
        "        random.random(), np.random.random_sample()",
        '        "torch" in sys.modules and sys.modules["torch"].rand(1)',
        "    was = settings()",
        "    replica = make_replica(MODEL, INITIAL[rank], OPTIMIZER, {})",
        "    now = settings()",
        "    states.append({name: str(now[name]) for name in generators if now[name] is not None})",
        "    others.append({name for name in was if was[name] != now[name]} - generators)",
        "seeded = [name for name in states[-1] if len({each.get(name) for each in states}) == 1]",
        'expect("generators that were seeded", sorted(seeded), [])',
        'expect("other settings that changed", sorted(set.union(*others)), [])',
    )


def calls(text: Text, position: int, op: Calls) -> None:
    text.use("collectives")
    text.judges = True
    world, last = text.job.world_size, text.job.world_size - 1
    size = 2 * world if op.collective == "reduce_scatter" else 2
    array = f'np.zeros({2 * size}, "{op.dtype}")[::2]' if op.strided else f'np.zeros({size}, "{op.dtype}")'
    call, want = _CALLS[op.collective]
    text.comment(position, f"{op.times} times {op.collective}, with one array that is refilled")
    text.add(
        f"every = np.stack([(np.arange({op.times}) + 7 * each) % {PERIOD} + 1 for each in range({world})], axis=1)",
        f'every = (every * {world if op.reduction == "mean" else 1}).astype("{op.dtype}")',
        f"array, results = {array}, []",
        "for number, value in enumerate(every[:, rank]):",
        "    array[...] = value",
        *(f"    {line}" for line in call.format(op=op.reduction, last=last).splitlines()),
        f"want = {want.format(op=op.reduction)}",
        "wrong = [number for number, got in enumerate(results) if (got.reshape(-1) != want[number]).any()]",
        'expect("the first calls whose result is wrong", wrong[:5], [])',
    )


_REDUCED = "every.{op}(axis=1).astype(every.dtype)[:, None]"
_CALLS = {
    "all_reduce": ('results.append(collectives.all_reduce(array, "{op}").copy())', _REDUCED),
    "all_reduce_async": ('results.append(collectives.all_reduce_async(array, "{op}").wait().copy())', _REDUCED),
    "reduce_scatter": ('results.append(collectives.reduce_scatter(array, "{op}").copy())', _REDUCED),
    "broadcast": ("results.append(collectives.broadcast(array, 0).copy())", "every[:, :1]"),
    "all_gather": ("results.append(collectives.all_gather(array).copy())", "np.repeat(every, 2, axis=1)"),
    "send_recv": (
        "if rank == 0:\n    collectives.send(array, {last})\n"
        "elif rank == {last}:\n    results.append(collectives.recv(array, 0).copy())",
        "every[:, :1]",
    ),
}
"""The call of a collective, and the rows of its results."""


def close(text: Text, position: int, op: Close) -> None:
    if position != len(text.job.operations) - 1:
        raise NoScript(f"operation {position} (close) is not the last: what follows has no plain form")
    text.comment(position, "the implementation is closed, which must come to an end")
    text.add('expect("close() comes to an end", facets.close and facets.close(), None)', 'seen["closed"] = 1')
