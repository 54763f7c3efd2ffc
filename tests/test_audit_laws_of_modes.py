"""The laws of an audit on modes of modules, on hooks of parameters, and on batches that are skipped."""

from __future__ import annotations

from dataclasses import replace

import pytest
from audit_evidence import LOADED, OFF, WRAPPED, Event, backward, call, cause, compared, evidence, state, step

from ddpcheck.audit.evidence import RunSeen
from ddpcheck.audit.laws import gradients, modes
from ddpcheck.audit.laws.law import LawVerdict


def mode(number: int, count: int, place: int = 0) -> Event:
    names = ["drop"] * count
    return {"kind": "mode", "step": number, "place": place, "count": count, "evaluating": names, "line": "train.py:7"}


def steps(count: int = 4) -> list[Event]:
    return [step(number) for number in range(count)]


def test_modes() -> None:
    def judged(*ranks: list[Event]) -> LawVerdict:
        return modes.ranks_train_in_the_same_mode(evidence(*([*steps(), *own] for own in ranks)))

    found = judged([mode(2, 1)], [])
    assert cause(found) == "training-modes-differ"
    assert (found.causes[0].get("ranks"), found.causes[0].get("step")) == ((0,), 2)
    assert cause(judged([mode(0, 1), mode(2, 0)], [mode(0, 1)])) == "training-modes-differ"
    for alike in (
        ([mode(0, 1)], [mode(0, 1)]),
        ([mode(1, 1), mode(1, 0)], [mode(1, 1), mode(1, 0)]),
        ([mode(1, 1), mode(1, 0)], []),
        ([mode(4, 1)], []),
    ):
        assert judged(*alike).status == "held", alike
    assert judged([mode(2, 1)]).status == "not judged"


def hooked(least: float, largest: float = 1.0) -> Event:
    return {"kind": "gradient_hook", "step": 0, "shape": [2], "factors": [least, largest], "line": "train.py:3"}


def apart() -> dict[str, object]:
    return {"off_one": OFF, "w": ((0.7, 0.4),), "w_off": 9.0, "factor_one_off": 9.0, "relative_off": 0.1}


def test_hooks_that_change_gradients() -> None:
    def judged(*ranks: list[Event]) -> str:
        events = [[WRAPPED, LOADED, state(0, **{"0.0": "p"}), backward(), step(), *own] for own in ranks]
        return cause(gradients.gradients_equal_those_of_one_process(evidence(*events, compared=(compared(**apart()),))))

    assert judged([hooked(0.1)], [hooked(0.2)]) == "gradient-changed-before-reduction"
    assert judged([hooked(0.5, 0.5)], [hooked(0.5, 0.5)]) == judged([], []) == "loss-couples-samples"


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        (["broadcast"], "batch-skipped-by-one-rank"),
        (["broadcast", "barrier"], "batch-skipped-by-one-rank"),
        (["all_reduce"], ""),
        (["broadcast", "all_reduce"], ""),
        ([], ""),
    ],
)
def test_one_process_reads_other_batches(calls: list[str], found: str) -> None:
    def read(kind: str, number: int, at: int) -> Event:
        return {**LOADED, "kind": kind, "number": number, "step": at}

    own = [WRAPPED, *(state(n, **{"0.0": "p"}) for n in (0, 1)), backward(), *steps(2)]
    own += [read("batch", 0, 0), read("batch", 1, 1), *(call(op, "train.py:6", step=1, values=[0.0]) for op in calls)]
    given = [read("given", 0, 0), read("given", 1, 1), read("given", 2, 1)]
    seen = evidence(own, own, compared=(compared(), compared(step=1, **apart())))
    seen = replace(seen, mirrors={"one": RunSeen((tuple(given),))})
    judged = gradients.gradients_equal_those_of_one_process(seen)
    assert [each.id for each in judged.causes] == ([found] if found else [])
    assert found or (judged.status == "held" and "step 1 not judged" in judged.observation)
    alike = replace(seen, mirrors={"one": RunSeen((tuple(given[:2]),))})
    assert cause(gradients.gradients_equal_those_of_one_process(alike)) == "loss-couples-samples"
