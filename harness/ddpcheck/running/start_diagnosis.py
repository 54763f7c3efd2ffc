"""Diagnoses why ranks did not start. A user's file may hide one of Python's own modules from them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from ..causes.lifecycle import PORT_TAKEN_BY_PARENT
from ..ranks.attaching import StartFailed
from ..verdict import Diagnosis


def start_diagnosis(error: StartFailed, world_size: int, parent: bool, *, again: bool) -> Diagnosis:
    """The reason why the ranks did not start. parent: one process imports the adapter's module and starts the ranks."""
    first, *others = error.problems
    in_use = parent and "Address already in use" in first
    words = "start again after a rank was lost" if again else "start"
    advice = "connect() of the adapter and its launcher; the ranks' output is below"
    if error.stuck:
        advice = "the stacks below: which rank does each wait for, and do all use the same MASTER_ADDR and MASTER_PORT?"
    hidden = hiding([*sys.path, str(Path.cwd())]) if error.unreached else []
    if hidden:
        advice = f"{hidden[0]}: it hides Python's own module {hidden[0].stem} from the ranks; give it another name"
    return Diagnosis(
        f"the {world_size} ranks did not {words}: {first}",
        (*error.causes, *(PORT_TAKEN_BY_PARENT(),) * in_use),
        advice=advice if error.words else "",
        details=(*others, *error.words),
    )


def hiding(folders: Iterable[str]) -> list[Path]:
    """Files in these folders that have the name of a standard module; Python's own folders are left out."""
    own = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    places = dict.fromkeys(Path(folder).resolve() for folder in folders)
    return [
        file
        for place in places
        if not any(place.is_relative_to(prefix) for prefix in own)
        for file in sorted(place.glob("*.py"))
        if file.stem in sys.stdlib_module_names
    ]
