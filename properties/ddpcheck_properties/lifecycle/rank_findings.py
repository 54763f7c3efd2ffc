"""Findings about a rank that does not do what it should after another rank failed."""

from __future__ import annotations

from ddpcheck.causes import Cause
from ddpcheck.causes import lifecycle as causes
from ddpcheck.trace import RankTrace, Record
from ddpcheck.verdict import Diagnosis, Finding


def finding_about(rank: RankTrace, headline: str, *blamed: Cause) -> Finding:
    """A Finding by these causes, with the rank's stack or error."""
    stack = (f"stack of rank {rank.rank}:\n{rank.stack}",) if rank.stack else ()
    details = stack or (rank.error,) * bool(rank.error)
    advice = "the stack below" if stack else ""
    return Finding(Diagnosis(headline, blamed, advice, details), hung=rank.outcome == "hung")


def process_still_there(rank: RankTrace, when: str) -> Finding:
    """A Finding about a process that did not end with its program."""
    return finding_about(
        rank, f"rank {rank.rank}'s program ended {when}, but its process is still there", causes.PROCESS_KEPT_ALIVE()
    )


def place_of(record: Record | None) -> str:
    """An operation of a rank, in words; None is the time before the first."""
    return f"operation {record.operation} ({record.kind})" if record else "start-up"
