"""Operations for an accumulation window that stays open during other operations: evaluation, saving, further
windows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from ..storage.dataclass_json import plain
from .replica import of_two_replicas


@plain
@dataclass(frozen=True, slots=True)
class OpenWindow:
    """Enter no_sync(), nested if already entered: every backward is local until the matching CloseWindow."""

    kind: ClassVar[str] = "open_window"


@plain
@dataclass(frozen=True, slots=True)
class CloseWindow:
    """Leave the innermost no_sync()."""

    kind: ClassVar[str] = "close_window"


def windows_that_do_not_fit(operations: Iterable[object]) -> list[str]:
    """Errors in the order of windows. A Resume builds a new replica, so it cannot stand inside the old replica's
    window.
    """
    depths = [0, 0]
    for position, (replica, operation) in enumerate(of_two_replicas(operations)):
        kind = getattr(operation, "kind", "")
        if kind == "resume" and depths[replica]:
            return [f"operation {position} (resume): stands inside no_sync() of the replica that it replaces"]
        depths[replica] += (kind == "open_window") - (kind == "close_window")
        if depths[replica] < 0:
            return [f"operation {position} (close_window): no window is open"]
    return ["a window is still open at the end"] if any(depths) else []
