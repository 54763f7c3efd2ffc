"""An audit inside a test: `ddp_audit("train.py", "--epochs", "1", ranks=2).holds()`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..launchers.fork_servers import ForkServers
from ..verdict import Verdict
from .evidence import Evidence, RandomStreams
from .evidence_collection import conduct
from .page import page
from .request import Request
from .verdicts import verdicts_of


@dataclass(frozen=True)
class Audited:
    """The evidence and the verdicts of an audit."""

    evidence: Evidence
    verdicts: Sequence[Verdict]

    @property
    def causes(self) -> tuple[str, ...]:
        """The id of the likeliest cause of each broken law, the most fundamental law first."""
        return tuple(
            dict.fromkeys(v.diagnosis.cause.id for v in self.verdicts if v.diagnosis is not None and v.diagnosis.cause)
        )

    @property
    def page(self) -> str:
        """The text that `ddpcheck audit` would print."""
        return page(self.evidence, list(self.verdicts))

    def status(self, law: str) -> str:
        """The law's status: passed, failed, skipped or unknown. KeyError if there is no such law."""
        return {verdict.check: verdict.status for verdict in self.verdicts}[law]

    def holds(self, *, without: Sequence[str] = ()) -> None:
        """AssertionError with the page if a law is broken, or if no optimizer step was seen. without: laws to leave
        out.
        """
        broken = [verdict.check for verdict in self.verdicts if not verdict.ok and verdict.check not in without]
        if broken or not self.evidence.steps_seen:
            raise AssertionError(self.page)


def audit(
    script: str,
    *arguments: str,
    ranks: int = 2,
    steps: int = 6,
    no_gpu: bool = False,
    deadline: float = 30.0,
    random_streams: RandomStreams = "different",
    fork_servers: ForkServers | None = None,
) -> Audited:
    """Audit a script: run it on `ranks` ranks and as one process, and judge. Paths are relative to the current
    folder. With fork_servers, several audits import torch only once.
    """
    request = Request(
        (str(script), *arguments),
        ranks,
        steps,
        no_gpu=no_gpu,
        deadline=deadline,
        random_streams=random_streams,
        fork_servers=fork_servers,
    )
    evidence = conduct(request)
    return Audited(evidence, tuple(verdicts_of(evidence)))
