"""Hypotheses about arrays whose memory layout is misread."""

from __future__ import annotations

from ...causes import Cause
from ...causes import collectives as causes

_IGNORED = {
    "mixed": causes.LAYOUTS_DIFFER,
    "varied": causes.LAYOUTS_DIFFER,
    "columns": causes.STRIDE_IGNORED,
    "repeated": causes.ZERO_STRIDE_IGNORED,
}
"""For each layout of an argument, the cause if no other explains a wrong result."""


def layout_ignored(layout: str) -> tuple[Cause, ...]:
    """The cause that the layout itself suggests."""
    return (_IGNORED[layout](),) if layout in _IGNORED else ()
