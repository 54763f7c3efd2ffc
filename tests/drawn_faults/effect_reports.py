"""Whether an effect has had one: a rank leaves a word in a file, which run.py looks for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

VARIABLE = "DRAWN_FAULTS_TOLD"
"""The environment variable that names the file."""


def tell(effect: Callable[[], Any], right: Any) -> Any:
    """What the effect gives, or raises, after it is told if that is not what is right."""
    try:
        found = effect()
    except Exception:
        say()
        raise
    if type(found) is not type(right) or _content(found) != _content(right):
        say()
    return found


def _content(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        return repr(value)


def say() -> None:
    """Something was wrong."""
    if VARIABLE in os.environ:
        Path(os.environ[VARIABLE]).touch()
