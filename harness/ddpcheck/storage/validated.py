"""Validates data from outside against declared types: an error names the field that does not fit."""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from typing import Any

from typeguard import CollectionCheckStrategy, TypeCheckError, check_type

from .. import operations
from ..job import MOST_RANKS, Job
from ..operations import Aggregate

_FORBIDDEN = frozenset('"\\{}')
"""Characters that texts of a Job must not contain: the texts are put into scripts, between double quotes."""
_LONGEST = 200
_MOST_OPERATIONS = 10_000
"""The most operations of one Job. Drawn Jobs have about ten, the longest of a check some hundred."""


def validated_job(job: Job) -> Job:
    """The Job, if all its parts have their declared types. ValueError that names the first that has not, or is too
    large.
    """
    _check(job, "job")
    if not 1 <= job.world_size <= MOST_RANKS:
        raise ValueError(f"job.world_size is {job.world_size}, but should be 1 to {MOST_RANKS}")
    if len(job.operations) > _MOST_OPERATIONS:
        raise ValueError(f"job.operations are {len(job.operations):,}, but should be at most {_MOST_OPERATIONS:,}")
    return job


def fits(value: Any, declared: Any, place: str) -> None:
    """ValueError if a value does not have a declared type; place: its name in the message."""
    try:
        check_type(value, declared, collection_check_strategy=CollectionCheckStrategy.ALL_ITEMS)
    except TypeCheckError as error:
        raise ValueError(f"{place}: {error}") from None


def _check(value: Any, place: str) -> None:
    if isinstance(value, str) and not _is_name(value):
        raise ValueError(
            f"{place} is {value[:40]!r}, but should be a name: printable, and without quotes, braces or backslashes"
        )
    if isinstance(value, tuple):
        for number, part in enumerate(value):
            _check(part, f"{place}[{number}]")
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return
    for name, declared in _hints(type(value)).items():
        part = getattr(value, name)
        fits(part, declared, f"{place}.{name}")
        if not (isinstance(value, Aggregate) and name in ("names", "no_number")):  # metrics may have any name
            _check(part, f"{place}.{name}")


def _is_name(text: str) -> bool:
    """Whether a text is safe in a script and, without `..`, in a path."""
    return text.isprintable() and ".." not in text and len(text) <= _LONGEST and not _FORBIDDEN & set(text)


@cache
def _hints(cls: type) -> dict[str, Any]:
    """The declared types of a dataclass's fields. Operations that contain others name them before all are defined."""
    hints = typing.get_type_hints(cls, localns={"Operation": operations.Operation})
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}
