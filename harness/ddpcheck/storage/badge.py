"""A badge for a run, in the format of a shields.io endpoint: https://shields.io/badges/endpoint-badge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..counted_nouns import counted
from ..verdict import Verdict
from .files import write_atomically


def badge(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The number of laws that hold or fail. A law counts once for all adapters and world sizes."""
    failed = {verdict.check for verdict in verdicts if not verdict.ok}
    held = {verdict.check for verdict in verdicts if verdict.status == "passed"} - failed
    if failed:
        message, color = f"{counted(len(failed), 'law')} broken", "red"
    elif held:
        message, color = counted(len(held), "law holds", "laws hold"), "brightgreen"
    else:
        message, color = "nothing checked", "lightgrey"
    return {"schemaVersion": 1, "label": "ddpcheck", "message": message, "color": color}


def save_badge(verdicts: Sequence[Verdict], path: Path) -> None:
    """Write the badge. UnwritableFile if that fails."""
    write_atomically(path, json.dumps(badge(verdicts)) + "\n")
