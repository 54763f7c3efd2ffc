"""Parts of samples, such as inputs and labels, that belong together in the data set of one process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch  # the marker above must come first
from audit_evidence import Event, cause, evidence

from ddpcheck.audit.evidence import RunSeen
from ddpcheck.audit.laws import sample_parts as law
from ddpcheck.audit.laws.law import LawVerdict
from ddpcheck.audit.mirror import sample_parts


def parts(*columns: tuple[str, list[Any]]) -> sample_parts.Parts:
    return {name: [str(each) for each in values] for name, values in columns}


OWN = parts(("x", list("abcdef")), ("y", list("uvwxyz")), ("number", [0, 1, 2, 3, 4, 5]), ("label", [0, 0, 1, 1, 0, 1]))


def apart(indices: list[int], **columns: list[Any]) -> list[tuple[str, int, int, int]]:
    return list(sample_parts._apart(parts(*columns.items()), OWN, indices))


def test_parts_of_a_rank_with_every_second_sample() -> None:
    places = [0, 1, 2]
    assert apart(places, x=list("bdf"), y=list("vxz"), number=[0, 1, 2], label=[0, 1, 1]) == []
    by_place = apart(places, x=list("bdf"), y=list("uvw"))
    assert ("y", 3, 3, 3) in by_place
    assert apart(places, x=list("bdf"), label=[1, 0, 1]) == [("label", 2, 1, 3)], (
        "labels that one process makes otherwise"
    )
    assert apart(places, x=list("123"), label=[1, 0, 1]) == [], "samples that one process does not have"


def test_parts_of_a_batch() -> None:
    batch = {"x": torch.zeros(2, 3), "more": (torch.tensor([4, 5]), torch.zeros(5)), "size": 2}
    found = dict(sample_parts._rows(batch, 2))
    assert list(found) == ["['x']", "['more'][0]"]
    assert found["['more'][0]"] == ["4", "5"]


def test_the_law() -> None:
    def judged(here: int, *, again: int | None = None, count: int = 20) -> LawVerdict:
        def event(here: int) -> Event:
            return {
                "kind": "part_apart", "rank": 0, "part": "[1]", "count": count, "here": here, "looked": 20, "samples": 40,
                "key": "train.py:4#1", "line": "train.py:4",
            }  # fmt: skip

        runs = {"one": event(here), "noise": event(here if again is None else again)}
        mirrors = {name: RunSeen(((each,),)) for name, each in runs.items()}
        return law.samples_have_their_own_parts(replace(evidence([], []), mirrors=mirrors))

    assert cause(judged(20)) == "part-of-another-sample"
    assert judged(2).observation.startswith("20 of 20 samples of rank 0 have another part [1]")
    assert not judged(2, again=3).observation, "labels that are other in each run"
    few = judged(4, count=4)
    assert (few.status, few.observation) == ("held", "")
    assert law.samples_have_their_own_parts(evidence([], [])).status == "not judged"
