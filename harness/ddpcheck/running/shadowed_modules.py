"""Files of a user that hide Python's own modules from ranks, where their folder comes first on the path."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path


def hiding(folders: Iterable[str]) -> list[Path]:
    """Files in these folders that are named as modules of the standard library are; Python's own folders are left out."""
    own = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    places = dict.fromkeys(Path(folder).resolve() for folder in folders)
    return [
        file
        for place in places
        if not any(place.is_relative_to(prefix) for prefix in own)
        for file in sorted(place.glob("*.py"))
        if file.stem in sys.stdlib_module_names
    ]
