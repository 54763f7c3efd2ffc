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
    frame = own_frame()
    return f"{_relative(frame.f_code.co_filename, root)}:{frame.f_lineno}" if frame is not None else ""


def own_callers(root: str) -> list[str]:
    """The lines that called own_line's, innermost first; calls inside libraries are left out."""
    frame, found = own_frame(), list[str]()
    while frame is not None and len(found) < _CALLERS:
        frame = frame.f_back
        if frame is not None and not (frame.f_code.co_filename.startswith(OWN) or is_library(frame.f_code.co_filename)):
            found.append(f"{_relative(frame.f_code.co_filename, root)}:{frame.f_lineno}")
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


def line_in(file: str, line: int, root: str) -> str:
    """As own_line shows it."""
    return f"{_relative(file, root)}:{line}"


@functools.cache
def is_library(file: str) -> bool:
    return _LIBRARY.search(file) is not None


@functools.cache
def _relative(file: str, root: str) -> str:
    path = os.path.relpath(file, root) if root else file
    return file if path.startswith("..") else path
