"""Hand-written evidence of an audit: events in, without running a script and without torch."""

from __future__ import annotations

from typing import Any

from ddpcheck.audit.evidence import Evidence, RunSeen, StepSeen
from ddpcheck.audit.laws.law import LawVerdict

Event = dict[str, Any]


def evidence(*ranks: list[Event], compared: tuple[StepSeen, ...] = (), **more: Any) -> Evidence:
    real = RunSeen(tuple(tuple(events) for events in ranks), ("",) * len(ranks), **more)
    return Evidence(("train.py",), len(ranks), 6, 400, real, {}, compared)


def step(number: int = 0, **changes: Any) -> Event:
    made: Event = {
        "kind": "step", "step": number, "optimizer": 0, "groups": [{"lr": 0.1}], "grads": ["a"], "covered": ["synchronised"],
        "parts": [1], "zero": False, "finite": True, "backwards": 1, "precision": "", "line": "train.py:9",
    }  # fmt: skip
    return {**made, **changes}


def state(number: int = 0, **digests: str) -> Event:
    return {
        "kind": "state", "step": number, "number": number, "digests": digests, "unoptimized": [], "strays": [], "grad": True,
        "line": "train.py:5",
    }  # fmt: skip


def backward(number: int = 0, **changes: Any) -> Event:
    made: Event = {
        "kind": "backward",
        "step": 0,
        "number": number,
        "line": "train.py:8",
        "sync": [True],
        "scale": 1.0,
        "root": "NllLoss",
        "loss": None,
    }
    return {**made, **changes}


def cause(judged: LawVerdict) -> str:
    assert judged.status == "broken"
    return judged.causes[0].id


LOADED: Event = {"kind": "batch", "grad": True, "key": "a", "passed": 0, "number": 0, "step": 0, "line": "train.py:4"}
WRAPPED: Event = {
    "kind": "wrapped",
    "broadcast_buffers": True,
    "find_unused_parameters": False,
    "static_graph": False,
    "line": "train.py:3",
}


def compared(**changes: Any) -> StepSeen:
    made: dict[str, Any] = {
        "step": 0, "optimizer": 0, "v": (0.5, 0.5), "w": ((0.5, 0.5),), "factor_one": 1.0, "noise": 1e-7, "relative_off": 1e-7,
    }  # fmt: skip
    return StepSeen(**{**made, **changes})


OFF = {"0.0": 900.0}


def call(op: str, line: str, **changes: Any) -> Event:
    made: Event = {
        "kind": "collective", "op": op, "step": 0, "number": 0, "point": False, "group": 2, "line": line, "shape": [1],
        "dtype": "float32", "reduce": "SUM", "grad": True, "values": None, "loses_gradient": False,
    }  # fmt: skip
    return {**made, **changes}
