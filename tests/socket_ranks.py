"""Ranks of numpy_sockets as threads of one process: for tests of the communicator itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ddpcheck.contract.rank_context import RankContext
from ddpcheck.launchers.ports import reserve_port
from ddpcheck_implementations.numpy_sockets.communicator import Communicator
from ddpcheck_implementations.numpy_sockets.start import start

LIMIT = 20.0
TRANSPORTS = ("tcp", "unix", "shm")
transport = "auto"
"""The transport of ranks unless a test chooses another; modules that run all their tests over each transport set it."""
hosts = ""
"""The emulated hosts, chosen in the same way."""


def in_threads(functions: list[Callable[[], Any]]) -> list[Any]:
    """The result or exception of each function, after all have ended."""
    outcomes: list[Any] = [TimeoutError("it did not end")] * len(functions)

    def run(place: int) -> None:
        try:
            outcomes[place] = functions[place]()
        except Exception as error:
            outcomes[place] = error

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    return outcomes


def usual() -> dict[str, Any]:
    return {"timeout": LIMIT, "transport": transport, "hosts": hosts}


def outcomes_of(world_size: int, program: Callable[[Communicator], Any], **options: Any) -> list[Any]:
    """The result or exception of `program` on every rank."""
    port = reserve_port()

    def rank(number: int) -> Any:
        context = RankContext(number, world_size, number, world_size, "127.0.0.1", port.number)
        communicator = start(context, start_timeout=LIMIT, **(usual() | options))
        try:
            return program(communicator)
        finally:
            communicator.close()

    try:
        return in_threads([lambda number=number: rank(number) for number in range(world_size)])  # type: ignore[misc]
    finally:
        port.release()


def on_ranks(world_size: int, program: Callable[[Communicator], Any], **options: Any) -> list[Any]:
    """As outcomes_of, but raises the first exception of any rank."""
    outcomes = outcomes_of(world_size, program, **options)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes
