"""Which of the faulty implementations the tests run: all would take most of the tests' time."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ddpcheck_implementations.faulty import Fault

EVERY = "DDPCHECK_EVERY_FAULT"
"""Set, as `tox -e faults` does it, it has them all run. `ddpcheck faults` does so, too, and says how each is caught."""


def chosen(registered: Sequence[Fault]) -> list[Fault]:
    """For each check the first fault that names it, and every third of the others."""
    if os.environ.get(EVERY):
        return list(registered)
    known: set[str] = set()
    found: list[Fault] = []
    for number, fault in enumerate(registered):
        if number % 3 == 0 or not known.issuperset(fault.caught_by):
            found.append(fault)
        known.update(fault.caught_by)
    return found
