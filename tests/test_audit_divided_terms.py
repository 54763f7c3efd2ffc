"""The law of an audit on terms of a loss that do not depend on samples."""

from __future__ import annotations

from dataclasses import replace

from audit_evidence import LOADED, Event, cause, evidence

from ddpcheck.audit.evidence import RunSeen
from ddpcheck.audit.laws import divided_terms
from ddpcheck.audit.laws.law import LawVerdict


def loader(size: int, batches: int, batch: int = 8) -> Event:
    return {"kind": "loader", "key": "a", "size": size, "batches": batches, "batch_size": batch, "line": "train.py:3"}


def judged(
    *counts: float, term: tuple[float, ...] = (300.0, 300.0), size: int = 64, whole: int = 128, batch: int = 8
) -> LawVerdict:
    """Each of two ranks has a data set with `size` of the `whole` samples; counts: what they divide the term by."""

    def rank(count: float, value: float) -> list[Event]:
        values = [["train.py:6", "sum", value, [], None], ["train.py:7", "div", value / count, [0], None]]
        return [
            loader(size, size // batch, batch),
            LOADED,
            {"kind": "terms", "step": 0, "loss": 1, "values": values, "numbers": []},
        ]

    one = RunSeen(((loader(whole, whole // batch, batch), {**LOADED, "kind": "given"}),))
    ranks = (rank(count, value) for count, value in zip(counts, term, strict=True))
    return divided_terms.terms_are_divided_by_all_samples(replace(evidence(*ranks), mirrors={"one": one}))


def test_a_term_divided_by_own_samples() -> None:
    found = judged(64, 64)
    assert cause(found) == "term-divided-by-own-samples"
    assert (found.causes[0].get("line"), found.causes[0].get("size")) == ("train.py:7", 128)


def test_other_terms() -> None:
    assert judged(128, 128).status == judged(8, 8).status == judged(64.5, 64.5).status == "held"
    assert judged(64, 64, term=(300.0, 310.0)).status == "held", "it depends on samples"
    assert judged(128, 128, size=128).status == "not judged", "each rank has all samples"
    assert judged(40, 40, size=40, whole=40, batch=32).status == "held", "and large batches"
