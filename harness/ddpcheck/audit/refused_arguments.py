"""Recognises a script that ended because it does not accept its arguments, as argparse ends one."""

from __future__ import annotations

from .evidence import Evidence

_USAGE_ERROR = 2
"""The exit status of a usage error, by the convention that argparse and click follow."""


def refused_arguments(evidence: Evidence) -> bool:
    """Whether each rank ended with the status of a usage error, before any step."""
    statuses = {evidence.real.end(rank).get("exit_status") for rank in range(evidence.ranks)}
    return not evidence.steps_seen and statuses == {_USAGE_ERROR}
