"""Hypotheses about a changed process: random generators, settings, and resources that calls leave behind."""

from __future__ import annotations

from collections.abc import Sequence

from ..causes import Cause
from ..causes import process_state as causes
from ..execution.process_resources import MEMORY
from ..execution.process_settings import GENERATORS


def generators_changed(names: Sequence[str]) -> Cause | None:
    """names: the generators and the settings of the process that changed."""
    generators = tuple(name for name in names if name in GENERATORS)
    return causes.GENERATOR_CHANGED(generators=generators) if generators else None


def settings_changed(names: Sequence[str]) -> Cause | None:
    settings = tuple(name for name in names if name not in GENERATORS)
    return causes.SETTING_CHANGED(settings=settings) if settings else None


def memory_grows(resource: str) -> Cause | None:
    """resource: the name of what each call leaves behind."""
    if resource not in MEMORY:
        return None
    return causes.MEMORY_GROWS(held="arrays" if resource == "bytes" else "small objects")


def resource_left(resource: str) -> Cause:
    return causes.RESOURCE_LEFT(resource=resource)
