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
    fits_its_types(job, "job")
    _has_safe_names(job, "job")
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


def fits_its_types(value: Any, place: str) -> None:
    """ValueError if a field of a dataclass, or of one inside it, does not have its declared type."""
    for number, part in enumerate(value if isinstance(value, tuple) else ()):
        fits_its_types(part, f"{place}[{number}]")
    for name, declared in _fields(value).items():
        fits(getattr(value, name), declared, f"{place}.{name}")
        fits_its_types(getattr(value, name), f"{place}.{name}")


def _has_safe_names(value: Any, place: str) -> None:
    if isinstance(value, str) and not _is_name(value):
        raise ValueError(
            f"{place} is {value[:40]!r}, but should be a name: printable, and without quotes, braces or backslashes"
        )
    for number, part in enumerate(value if isinstance(value, tuple) else ()):
        _has_safe_names(part, f"{place}[{number}]")
    for name in _fields(value):
        if not (isinstance(value, Aggregate) and name in ("names", "no_number")):  # metrics may have any name
            _has_safe_names(getattr(value, name), f"{place}.{name}")


def _is_name(text: str) -> bool:
    """Whether a text is safe in a script and, without `..`, in a path."""
    return text.isprintable() and ".." not in text and len(text) <= _LONGEST and not _FORBIDDEN & set(text)


def _fields(value: Any) -> dict[str, Any]:
    """The declared types of a dataclass's fields; none of any other value."""
    return _hints(type(value)) if dataclasses.is_dataclass(value) and not isinstance(value, type) else {}


@cache
def _hints(cls: type) -> dict[str, Any]:
    """The declared types of a dataclass's fields. Operations that contain others name them before all are defined."""
    hints = typing.get_type_hints(cls, localns={"Operation": operations.Operation})
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}
