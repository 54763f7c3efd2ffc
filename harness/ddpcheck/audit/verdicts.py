"""Laws as verdicts: held, broken with causes, or not judged with the reason."""

from __future__ import annotations

import traceback

from ..causes.audit.accumulation import ACCUMULATION_NOT_DIVIDED, LAST_WINDOW_NOT_STEPPED
from ..causes.audit.gradients import CLIP_EVERY_MICRO_BATCH, GRADIENTS_ALL_ZERO, GRADIENTS_LOST
from ..causes.audit.replicas import REPLICAS_DRIFT
from ..causes.audit.steps import RANKS_STEP_APART, SCHEDULE_STEPS_DIFFER
from ..counted_nouns import counted
from ..verdict import Diagnosis, Status, Verdict
from .could_not_run import could_not_run
from .evidence import Evidence
from .laws import LAWS, Law, LawVerdict
from .laws.law import not_judged

NOTHING_JUDGED = 2
"""The exit status of an audit that saw no optimizer step on all ranks."""

_FOLLOWING = {
    kind.id
    for kind in (
        REPLICAS_DRIFT,
        GRADIENTS_ALL_ZERO,
        GRADIENTS_LOST,
        RANKS_STEP_APART,
        SCHEDULE_STEPS_DIFFER,
        CLIP_EVERY_MICRO_BATCH,
        ACCUMULATION_NOT_DIVIDED,
        LAST_WINDOW_NOT_STEPPED,
    )
}
"""Causes that are no finding of their own after a law that they follow."""
_OF_ONE_PROCESS = {law.name for law in LAWS if law.of_one_process}

_STATUS: dict[str, Status] = {"held": "passed", "broken": "failed", "not judged": "skipped"}


def verdicts_of(evidence: Evidence) -> list[Verdict]:
    """One verdict for each law, in their order. A law that crashes is unknown, never passed."""
    made: dict[str, Verdict] = {}
    for law in LAWS:
        explained = any(made[name].status == "failed" for name in law.follows)
        made[law.name] = _verdict(evidence, law, explained=explained)
    return list(made.values())


def _verdict(evidence: Evidence, law: Law, *, explained: bool) -> Verdict:
    """explained: a verdict without a cause of its own follows from a law that is broken."""
    try:
        judged = law.judge(evidence)
    except Exception:
        return _made(evidence, law, not_judged(traceback.format_exc()), "unknown")
    if explained and judged.causes and judged.causes[0].id in _FOLLOWING:
        judged = not_judged(f"{judged.headline}, as a broken law above explains")
    return _made(evidence, law, judged, _STATUS[judged.status])


def _diagnosis(judged: LawVerdict) -> Diagnosis | None:
    if judged.status != "broken":
        return None
    return Diagnosis(judged.headline, judged.causes, details=judged.details)


def _made(evidence: Evidence, law: Law, judged: LawVerdict, status: Status) -> Verdict:
    return Verdict(
        adapter=evidence.title,
        world_size=evidence.ranks,
        check=law.name,
        family=law.family,
        status=status,
        reason=judged.note,
        diagnosis=_diagnosis(judged),
        observation=judged.observation,
    )


def answer(evidence: Evidence, verdicts: list[Verdict], *, strict: bool = False) -> tuple[int, str]:
    """The exit status and the first line: 0 yes, 1 no, 2 nothing could be judged; strict: or gradients could not."""
    name = evidence.title
    failed = [verdict for verdict in verdicts if not verdict.ok]
    against = next(verdict for verdict in verdicts if verdict.check == "gradients_equal_those_of_one_process")
    if failed:
        count = len({verdict.diagnosis.cause.id for verdict in failed if verdict.diagnosis and verdict.diagnosis.cause})
        causes = counted(count, "cause") if count else "a law crashed"
        if all(verdict.check in _OF_ONE_PROCESS and verdict.diagnosis for verdict in failed):
            return 1, f"NO: {name} goes wrong on one process, too ({causes})"
        return 1, f"NO: {name} on {counted(evidence.ranks, 'rank')} is not the run of one process ({causes})"
    if reason := could_not_run(evidence):
        return NOTHING_JUDGED, f"NOT JUDGED: {name} {reason}"
    if not evidence.steps_seen:
        return NOTHING_JUDGED, f"NOT JUDGED: {name} took no optimizer step on all ranks"
    if against.status == "skipped":
        status = NOTHING_JUDGED if strict else 0
        return status, f"NO FINDING in {name}, but gradients were not compared with one process: {against.reason}"
    return (
        0,
        f"YES: {name} on {counted(evidence.ranks, 'rank')} is the run of one process "
        f"({counted(evidence.steps_seen, 'step')} looked at, {evidence.steps_compared} of them against one process)",
    )
