"""Selects the faulty and correct implementations, and the scripts, for the usual test run, since running all takes too long;
and tells whether a failure names a fault's cause.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

from ddpcheck.verdict import Diagnosis
from ddpcheck_implementations.faulty import Registered

T = TypeVar("T")
EVERY = "DDPCHECK_EVERY_FAULT"
"""If set, as by `tox -e faults`, all are run. `ddpcheck faults` also runs all, and reports the check that catches
each.
"""
ONE_IN = 10


def chosen(registered: Sequence[Registered]) -> list[Registered]:
    """For each check the first fault that names it, and some of the others; none that needs minutes in the deep
    profile.
    """
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
    """Every n-th item, starting at another one for the next `number`, so that each check runs on some correct
    implementations.
    """
    return [*applicable] if os.environ.get(EVERY) else [*applicable][number % ONE_IN :: ONE_IN]


def names_cause(diagnosis: Diagnosis, cause: str) -> bool:
    """Whether a diagnosis names the cause of this id; true if the id is empty."""
    return not cause or any(each.id == cause for each in diagnosis.causes)
