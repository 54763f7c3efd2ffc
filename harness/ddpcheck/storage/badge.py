"""A badge for a run, in the format of a shields.io endpoint: https://shields.io/badges/endpoint-badge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..verdict import Verdict
from .files import write_atomically


def badge(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The number of laws that hold or fail. A law counts once for all adapters and world sizes."""
    failed = {verdict.check for verdict in verdicts if not verdict.ok}
    held = {verdict.check for verdict in verdicts if verdict.status == "passed"} - failed
    if failed:
        message, color = f"{_laws(len(failed))} broken", "red"
    elif held:
        message, color = f"{_laws(len(held))} hold" if len(held) > 1 else "1 law holds", "brightgreen"
    else:
        message, color = "nothing checked", "lightgrey"
    return {"schemaVersion": 1, "label": "ddpcheck", "message": message, "color": color}


def save_badge(verdicts: Sequence[Verdict], path: Path) -> None:
    """Write the badge. UnwritableFile if that fails."""
    write_atomically(path, json.dumps(badge(verdicts)) + "\n")


def _laws(number: int) -> str:
    return "1 law" if number == 1 else f"{number} laws"
