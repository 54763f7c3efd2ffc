"""Known causes: while a check searches on for another cause, failures that these may explain count as passed.

Errors, descriptions of wrong values and guesses are not new: they are more likely another look of a known cause.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..verdict import Diagnosis
from .implied_causes import CONSEQUENCES, LOOKS


@dataclass
class KnownCauses:
    """The ids of causes, and the moment of the monotonic clock at which the search ends."""

    ids: frozenset[str]
    until: float = float("inf")

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.until

    def explain(self, diagnosis: Diagnosis) -> bool:
        """Whether the failure may have a known cause: it names one, or its first cause is not specific."""
        causes = diagnosis.causes
        if not causes or diagnosis.by_rank or causes[0].certainty == "possible" or causes[0].id in LOOKS | CONSEQUENCES:
            return True
        return any(cause.id in self.ids for cause in causes)
