"""Which of the faulty implementations the tests run, which checks on what is right, and which scripts: all would take most of
their time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

from ddpcheck_implementations.faulty import Registered

T = TypeVar("T")
EVERY = "DDPCHECK_EVERY_FAULT"
"""Set, as `tox -e faults` does it, it has them all run. `ddpcheck faults` does so, too, and says how each is caught."""
ONE_IN = 10


def chosen(registered: Sequence[Registered]) -> list[Registered]:
    """For each check the first fault that names it, and some of the others; none that takes minutes, in the deep profile."""
    if os.environ.get(EVERY):
        return list(registered)
    known: set[str] = set()
    found: list[Registered] = []
    for number, fault in enumerate(registered):
        if fault.deep:
            continue
        if number % ONE_IN == 0 or not known.issuperset(fault.caught_by):
            found.append(fault)
        known.update(fault.caught_by)
    return found


def some(applicable: Iterable[T], number: int) -> list[T]:
    """One in so many, others for the next `number`: each check is tried on some of what is correct."""
    return [*applicable] if os.environ.get(EVERY) else [*applicable][number % ONE_IN :: ONE_IN]
