"""Adapters whose last rank disturbs itself at a random moment, and otherwise works as numpy_sockets does."""

from __future__ import annotations

FILE = "chaotic.py"
TEXT = """
import ctypes, os, random, sys, threading, time
from dataclasses import replace
from ddpcheck_implementations.numpy_sockets import adapter as right


def flood():
    line = "x" * 1000 + "\\n"
    for _ in range(50_000):
        sys.stdout.write(line)
        sys.stderr.write(line)


def exits():
    os._exit(7)


def raises():
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(threading.main_thread().ident), ctypes.py_object(RuntimeError)
    )


def clock_jumps():
    clock = time.time
    ahead = random.choice((-86_400.0, -3.0, 3.0, 86_400.0))
    time.time = lambda: clock() + ahead
    clock_ns = time.time_ns
    time.time_ns = lambda: clock_ns() + int(ahead * 1e9)


def of(happens):
    def connect(context):
        if context.rank == context.world_size - 1:
            timer = threading.Timer(random.choice((0.0, random.uniform(0, 0.3), random.uniform(0, 2))), happens)
            timer.daemon = True
            timer.start()
        return right.connect(context)

    return replace(right, name=happens.__name__, connect=connect)


flood, exits, raises, clock_jumps = map(of, (flood, exits, raises, clock_jumps))
"""
