"""Failures that a user expects, with reasons. Strict: a check that was expected to fail and passes is a failure.

A name stands for every world size, `check_name@3,4` for world sizes 3 and 4 only: a fault that needs several ranks
passes at world size 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..checks import Check
from ..verdict import Diagnosis, Verdict
from .unknown_names import require_known


class ExpectedFailures:
    """Expected failures by check. ValueError, with close matches, for a name that is none of `checks`."""

    def __init__(self, declared: Mapping[str, str], checks: Iterable[Check]) -> None:
        names = [check.name for check in checks]
        self._reasons: dict[tuple[str, int | None], str] = {}
        for key, reason in declared.items():
            name, separator, sizes = key.partition("@")
            require_known(name, names, "check in the expected failures:")
            if not reason.strip():
                raise ValueError(
                    f"the expected failure {key!r} needs a reason: write why the check fails, or a link to its issue"
                )
            for size in _sizes(key, sizes) if separator else [None]:
                self._reasons[name, size] = reason

    def reason(self, check: str, world_size: int) -> str:
        """Why this check is expected to fail here; empty if it is not."""
        return self._reasons.get((check, world_size)) or self._reasons.get((check, None), "")

    def applied(self, verdict: Verdict) -> Verdict:
        """The verdict, with an expected failure marked as one."""
        reason = self.reason(verdict.check, verdict.world_size)
        if reason and verdict.status in ("failed", "hung"):
            return replace(verdict, status="expected_failure", reason=reason)
        if reason and verdict.status == "passed":
            headline = f"passed, but was expected to fail ({reason})"
            advice = (
                "the list of expected failures: remove this check, or name the world sizes at which it fails, as in "
                f"{verdict.check}@2,3"
            )
            return replace(verdict, status="failed", diagnosis=Diagnosis(headline, advice=advice))
        return verdict


def _sizes(key: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"in the expected failure {key!r} world sizes should follow the @, as in name@2,3") from None


NOTHING_EXPECTED = ExpectedFailures({}, ())
