"""Several generators at once, each in its own thread; their items come in the order in which they are made."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _End:
    """A thread has no more to do, or this kept it from going on."""

    error: BaseException | None = None


def advance_in_threads(
    works: Sequence[Iterable[T]], at_once: int, interrupt: Callable[[], None]
) -> Generator[T, None, None]:
    """What all `works` yield, `at_once` of them under way; they begin in their order.

    The first exception of any of them is raised here, once the others have ended. interrupt: called when they are to
    end early, for that or because this generator is closed; each then ends with what it is at, by KeyboardInterrupt if
    need be.
    """
    if at_once <= 1 or len(works) <= 1:
        for work in works:
            yield from work
        return
    waiting = iter(works)
    choosing = threading.Lock()
    made: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
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
            made.put(_End(error))
        else:
            made.put(_End())

    threads = [threading.Thread(target=run, name=f"side-by-side-{i}") for i in range(min(at_once, len(works)))]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            while not isinstance(value := made.get(), _End):
                yield value
            if value.error is not None:
                raise value.error
    finally:
        stopped.set()
        interrupt()
        for thread in threads:
            thread.join()
