"""Causes of a changed process: random generators and settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..causes import Cause
from ..causes import process_state as causes
from ..execution.process_settings import GENERATORS


def why_changed(names: Sequence[str]) -> Iterator[Cause]:
    """names: the generators and the settings of the process that changed."""
    generators = tuple(name for name in names if name in GENERATORS)
    settings = tuple(name for name in names if name not in GENERATORS)
    if generators:
        yield causes.GENERATOR_CHANGED(generators=generators)
    if settings:
        yield causes.SETTING_CHANGED(settings=settings)
