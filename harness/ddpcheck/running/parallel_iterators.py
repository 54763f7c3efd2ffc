"""Iterates over several iterables at once, each in its own thread; items are yielded when they are ready."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _ThreadEnd:
    """The end of a thread, by an error or because no iterable is left."""

    error: BaseException | None = None


def advance_in_threads(
    works: Sequence[Iterable[T]], at_once: int, interrupt: Callable[[], None]
) -> Generator[T, None, None]:
    """Yield the items of all `works`, `at_once` of them at the same time; they begin in their order.

    The first exception is raised once all threads have ended. interrupt: called at the end, so that works that still run
    end soon, for example by KeyboardInterrupt.
    """
    if at_once <= 1 or len(works) <= 1:
        for work in works:
            yield from work
        return
    waiting = iter(works)
    choosing = threading.Lock()
    made: queue.SimpleQueue[T | _ThreadEnd] = queue.SimpleQueue()
    stopped = threading.Event()

    def next_work() -> Iterable[T] | None:
        with choosing:
            return None if stopped.is_set() else next(waiting, None)

    def run() -> None:
        try:
            while (work := next_work()) is not None:
                for value in work:
                    made.put(value)
                    if stopped.is_set():
                        break
        except BaseException as error:
            made.put(_ThreadEnd(error))
        else:
            made.put(_ThreadEnd())

    threads = [threading.Thread(target=run, name=f"side-by-side-{i}") for i in range(min(at_once, len(works)))]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            while not isinstance(value := made.get(), _ThreadEnd):
                yield value
            if value.error is not None:
                raise value.error
    finally:
        stopped.set()
        interrupt()
        for thread in threads:
            thread.join()
