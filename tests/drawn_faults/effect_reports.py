"""Reports whether a drawn fault had an effect: a rank creates a file, and run.py checks for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

VARIABLE = "DRAWN_FAULTS_EFFECT"
"""The environment variable that names the file."""


def judge_effect(effect: Callable[[], Any], right: Any) -> Any:
    """Run `effect` and return its result; report an effect if it raises, or if the result differs from `right`."""
    try:
        found = effect()
    except Exception:
        report_effect()
        raise
    if type(found) is not type(right) or _content(found) != _content(right):
        report_effect()
    return found


def _content(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        return repr(value)


def report_effect() -> None:
    """Report that something was wrong on this rank."""
    if VARIABLE in os.environ:
        Path(os.environ[VARIABLE]).touch()
