"""The page of an audit counts the laws that held, and names those that a reader acts on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from audit_evidence import step

from ddpcheck.audit.evidence import Evidence, RunSeen, StepSeen
from ddpcheck.audit.laws import LAWS
from ddpcheck.audit.page import markdown, page
from ddpcheck.audit.verdicts import verdicts_of
from ddpcheck.verdict import Diagnosis, Status, Verdict

EMPTY = Evidence(("train.py",), 2, 0, 0, RunSeen(((), ())))


def judged(**changes: tuple[Status, str, str]) -> list[Verdict]:
    """Every law held after a comparison, but for these: status, reason and observation."""
    found = []
    for verdict in verdicts_of(EMPTY):
        status, reason, observation = changes.get(verdict.check, ("passed", "3 steps compared", ""))
        diagnosis = Diagnosis("got 1, but should be 2") if status == "failed" else None
        made = replace(verdict, status=status, reason=reason, observation=observation, diagnosis=diagnosis)
        found.append(made)
    return found


SOME = judged(
    ranks_form_one_world=("failed", "", ""),
    every_sample_is_used=("skipped", "no pass over a data set with indices ended", ""),
    buffers_are_equal=("unknown", "Traceback", ""),
    batch_norm_is_converted=("passed", "", "2 batch norms normalise one rank's samples"),
)


def table(shown: str) -> list[str]:
    return [line for line in shown.splitlines() if line.startswith(("✓", "•", "✗ broken", "- not", "? crashed"))]


def test_laws_that_held_are_counted_and_the_others_are_named() -> None:
    counted, observed, broken, skipped, crashed = table(page(EMPTY, SOME))
    sentence = "Batch norm sees the whole batch where that is meant."
    assert observed == f"• note       2 batch norms normalise one rank's samples (law: {sentence})"
    assert counted == f"✓ held       {len(LAWS) - 4} laws; ddpcheck audit -v names them"
    assert broken == "✗ broken     The processes form one world."
    assert skipped.startswith("- not judged Each sample is used.")
    assert skipped.endswith("  no pass over a data set with indices ended")
    assert crashed == "? crashed    Buffers that the forward pass uses are equal."


def test_the_answer_tells_how_many_steps_were_compared_with_one_process() -> None:
    ranks = tuple(tuple(step(number) for number in range(5)) for _ in range(2))
    compared = (StepSeen(0, 0), StepSeen(1, 0), StepSeen(2, 0, not_comparable="the random draws differ"))
    evidence = replace(EMPTY, real=RunSeen(ranks), compared=compared)
    shown = page(evidence, judged())
    told = "5 steps looked at, 2 of them against one process"
    assert shown.splitlines()[0] == f"YES: train.py on 2 ranks is the run of one process ({told})"
    assert "looked at: 5 optimizer steps on 2 ranks, 2 of them against one process; " in shown


def test_every_law_has_a_line_if_asked() -> None:
    shown = page(EMPTY, SOME, every=True)
    assert len(table(shown)) == len(LAWS)
    assert "names them" not in shown
    assert shown.count("3 steps compared") == len(LAWS) - 4


@pytest.mark.parametrize(("held", "counted"), [(0, []), (1, ["1 law"])])
def test_no_law_and_one_law_are_counted(held: int, counted: list[str]) -> None:
    skipped: dict[str, tuple[Status, str, str]] = {law.name: ("skipped", "no step", "") for law in LAWS[held:]}
    lines = [line for line in table(page(EMPTY, judged(**skipped))) if line.startswith("✓")]
    assert [line.removeprefix("✓ held       ").partition(";")[0] for line in lines] == counted


def test_markdown_has_each_law_with_its_observation() -> None:
    shown = markdown(EMPTY, SOME)
    assert shown.count(" | held | ") == len(LAWS) - 4
    assert "meant. | note | 2 batch norms normalise one rank's samples |" in shown


def test_every_run_is_named_with_its_time() -> None:
    mirrors = {"one": RunSeen(((),), seconds=2), "noise": RunSeen(((),), seconds=3)}
    shown = page(replace(EMPTY, mirrors=mirrors), SOME)
    assert "time of each run: 2 ranks 0.0 s, one process 2.0 s, one process again, for rounding 3.0 s; " in shown
