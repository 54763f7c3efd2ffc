"""Replaces functions, and finds the script's own line on the stack."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_LIBRARY = re.compile(r"[/\\](lib[/\\]python3|site-packages|dist-packages)|^<")
_CALLERS = 8
OWN = str(Path(__file__).resolve().parents[1]) + os.sep


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace owner.name by make(original)."""
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original)))


def replace_everywhere(owners: tuple[Any, ...], name: str, make: Callable[[Any], Any]) -> None:
    """Replace a function that several modules have under one name, by one replacement."""
    original = getattr(owners[0], name, None)
    if original is None:
        return
    made = functools.wraps(original)(make(original))
    for owner in owners:
        if getattr(owner, name, None) is original:
            setattr(owner, name, made)


def own_line(root: str) -> str:
    """The innermost line outside libraries and ddpcheck, as file:line, relative to `root`; empty if there is none."""
    return _line_of(own_frame(), root)


def own_callers(root: str) -> list[str]:
    """The lines that called own_line's, innermost first; calls inside libraries are left out."""
    frame, found = own_frame(), list[str]()
    while frame is not None and (frame := own_caller(frame)) is not None and len(found) < _CALLERS:
        found.append(_line_of(frame, root))
    return found


def own_frame() -> FrameType | None:
    """The innermost frame outside libraries and ddpcheck."""
    return _first_own(sys._getframe(1))


def own_caller(frame: FrameType) -> FrameType | None:
    """The frame that called this one, outside libraries and ddpcheck."""
    return _first_own(frame.f_back)


def _first_own(frame: FrameType | None) -> FrameType | None:
    while frame is not None and (frame.f_code.co_filename.startswith(OWN) or is_library(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame


def line_that_makes(made: Any, root: str) -> str:
    """The line that makes this object, as own_line: not one inside a method of the object, such as a subclass's __init__."""
    frame = own_frame()
    while frame is not None and frame.f_locals.get("self") is made:
        frame = own_caller(frame)
    return _line_of(frame, root)


def line_in(file: str, line: int, root: str) -> str:
    """As own_line shows it."""
    return f"{_relative(file, root)}:{line}"


def _line_of(frame: FrameType | None, root: str) -> str:
    return line_in(frame.f_code.co_filename, frame.f_lineno, root) if frame is not None else ""


@functools.cache
def is_library(file: str) -> bool:
    return _LIBRARY.search(file) is not None


@functools.cache
def _relative(file: str, root: str) -> str:
    path = os.path.relpath(file, root) if root else file
    return file if path.startswith("..") else path
