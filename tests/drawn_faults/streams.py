"""Random numbers for training that are wrong only under some circumstance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from effect_reports import judge_effect, report_effect

from ddpcheck.contract import Capabilities
from ddpcheck.contract.adapter import Facets
from ddpcheck.seeded_values import Array

Call = dict[str, Any]
"""One call: kind, own or common; count; seed, epoch, rank and world; start, the count of this kind drawn before in this
epoch, and others, the count of the other kind; calls of this kind in this epoch, from 1 on, and past ones of the
object, an array each; set, the number of set_epoch calls; again, backwards, whether this or a higher epoch was set
before; objects, the number of this object.
"""


def promised(right: Capabilities) -> Capabilities:
    """The promises of these adapters, a subset of the reference's."""
    return right.of_facets("randomness")


CIRCUMSTANCES: dict[str, Callable[[Call], Any]] = {
    "it is the rank's own": lambda c: c["kind"] == "own",
    "it is common": lambda c: c["kind"] == "common",
    "one number is drawn": lambda c: c["count"] == 1,
    "numbers are an odd number": lambda c: c["count"] % 2,
    "more than 100 numbers are drawn": lambda c: c["count"] > 100,
    "more than 5000 numbers are drawn": lambda c: c["count"] > 5000,
    "the seed is 0": lambda c: c["seed"] == 0,
    "the seed is odd": lambda c: c["seed"] % 2,
    "the seed is above 2^16": lambda c: c["seed"] > 1 << 16,
    "the seed has 32 bits": lambda c: c["seed"] >= 1 << 31,
    "no epoch was set": lambda c: not c["set"],
    "it is epoch 0": lambda c: c["epoch"] == 0,
    "it is epoch 1": lambda c: c["epoch"] == 1,
    "the epoch is above 1": lambda c: c["epoch"] > 1,
    "the epoch is above 99": lambda c: c["epoch"] > 99,
    "the epoch is odd": lambda c: c["epoch"] % 2,
    "the epoch is begun again": lambda c: c["again"],
    "the epoch is lower than the one before": lambda c: c["backwards"],
    "it is the second call of an epoch": lambda c: c["calls"] == 2,
    "it is the third call of an epoch or a later one": lambda c: c["calls"] > 2,
    "more than 500 were drawn in this epoch before": lambda c: c["start"] > 500,
    "some of the other kind were drawn before": lambda c: c["others"],
    "more of the other kind were drawn": lambda c: c["others"] > c["start"],
    "it is not the first object": lambda c: c["objects"] > 1,
    "it is the tenth object or a later one": lambda c: c["objects"] >= 10,
    "the rank is 0": lambda c: c["rank"] == 0,
    "the rank is the last": lambda c: c["rank"] == c["world"] - 1,
    "seed and epoch are equal in their last bit": lambda c: (c["seed"] ^ c["epoch"]) % 2 == 0,
}


def _numbers(c: Call, *key: int) -> Array:
    """The next numbers of the stream of a key; by default for this call's seed, epoch and kind."""
    entropy = key or (c["seed"], c["epoch"], 0 if c["kind"] == "common" else c["rank"] + 1)
    bits = np.random.PCG64(np.random.SeedSequence(entropy[0], spawn_key=entropy[1:]))
    return np.random.Generator(bits.advance(c["start"])).random(c["count"])


def _own_key(c: Call) -> int:
    return 0 if c["kind"] == "common" else int(c["rank"]) + 1


def _moved(right: Array) -> Array:
    return right if len(right) < 2 else (right + np.roll(right, 1)) % 1


EFFECTS: dict[str, Callable[[Call, Array], Any]] = {
    "the seed is ignored": lambda c, r: _numbers(c, 0, c["epoch"], _own_key(c)),
    "the epoch is ignored": lambda c, r: _numbers(c, c["seed"], 0, _own_key(c)),
    "all ranks have those of rank 0": lambda c, r: _numbers(c, c["seed"], c["epoch"], min(1, _own_key(c))),
    "it has those of the next rank": lambda c, r: _numbers(c, c["seed"], c["epoch"], c["rank"] + 2),
    "it has the common ones": lambda c, r: _numbers(c, c["seed"], c["epoch"], 0),
    "seed and rank are added up": lambda c, r: _numbers(c, c["seed"] + _own_key(c), c["epoch"], 9),
    "seed and epoch are added up": lambda c, r: _numbers(c, c["seed"] + c["epoch"], 9, _own_key(c)),
    "epoch and rank are added up": lambda c, r: _numbers(c, c["seed"], c["epoch"] + _own_key(c), 9),
    "the seed has 16 bits": lambda c, r: _numbers(c, c["seed"] % (1 << 16), c["epoch"], _own_key(c)),
    "the epoch has 8 bits": lambda c, r: _numbers(c, c["seed"], c["epoch"] % 256, _own_key(c)),
    "they come from the process's generator": lambda c, r: np.random.random(c["count"]),
    "they come from a generator without a seed": lambda c, r: np.random.default_rng().random(c["count"]),
    "the stream begins anew": lambda c, r: _numbers({**c, "start": 0}),
    "one number is left out": lambda c, r: _numbers({**c, "start": c["start"] + 1}),
    "as many are left out as were drawn of the other kind": lambda c, r: _numbers(
        {**c, "start": c["start"] + c["others"]}
    ),
    "they are those of the call before": lambda c, r: (
        c["past"][-1].copy() if c["past"] and len(c["past"][-1]) == len(r) else r
    ),
    "they lie in the array of the call before": lambda c, r: _into(c, r),
    "they are rounded to float16": lambda c, r: r.astype(np.float16).astype(float),
    "they are rounded to three decimals": lambda c, r: np.floor(r * 1000) / 1000,
    "they are in ascending order": lambda c, r: np.sort(r),
    "all are the first": lambda c, r: np.repeat(r[:1], len(r)),
    "the last is the first": lambda c, r: np.append(r[:-1], r[:1]),
    "they are below 0.9": lambda c, r: r * 0.9,
    "they are squared": lambda c, r: r * r,
    "the second half is the first": lambda c, r: np.resize(r[: -(-len(r) // 2)], len(r)),
    "each is mixed with the one before": lambda c, r: _moved(r),
    "there is one number more": lambda c, r: np.append(r, 0.5),
    "they are float32": lambda c, r: r.astype(np.float32),
    "they are a list": lambda c, r: r.tolist(),
    "a number is 1": lambda c, r: np.append(r[:-1], [1.0][: len(r)]),
    "an error is raised": lambda c, r: r[len(r)],
}


def _into(c: Call, right: Array) -> Array:
    if not c["past"] or len(c["past"][-1]) != len(right):
        return right
    report_effect()
    c["past"][-1][...] = right
    kept: Array = c["past"][-1]
    return kept


def wrapped(right: Facets, circumstance: str, effect: str) -> dict[str, Any]:
    """The facet, and no others."""
    objects = 0

    def make(seed: int) -> _Streams:
        nonlocal objects
        objects += 1
        call = {"seed": seed, "rank": right.rank, "world": right.world_size, "objects": objects}
        return _Streams(call, CIRCUMSTANCES[circumstance], EFFECTS[effect])

    return {"make_streams": make}


class _Streams:
    def __init__(self, call: Call, when: Callable[[Call], Any], effect: Callable[..., Any]) -> None:
        self.call: Call = {**call, "epoch": 0, "set": 0, "again": False, "backwards": False}
        self.when, self.effect = when, effect
        self.past: dict[str, list[Array]] = {"own": [], "common": []}
        self._begin()

    def _begin(self) -> None:
        self.drawn, self.calls = {"own": 0, "common": 0}, {"own": 0, "common": 0}

    def set_epoch(self, epoch: int) -> None:
        again = self.call["set"] > 0 and epoch == self.call["epoch"]
        backwards = epoch < self.call["epoch"]
        self.call |= {"epoch": epoch, "set": self.call["set"] + 1, "again": again, "backwards": backwards}
        self._begin()

    def local(self, count: int) -> Any:
        return self._next("own", "common", count)

    def common(self, count: int) -> Any:
        return self._next("common", "own", count)

    def _next(self, kind: str, other: str, count: int) -> Any:
        self.calls[kind] += 1
        call = {**self.call, "kind": kind, "count": count, "start": self.drawn[kind], "others": self.drawn[other]}
        call |= {"calls": self.calls[kind], "past": self.past[kind]}
        self.drawn[kind] += count
        found = right = _numbers(call)
        if self.when(call):
            found = judge_effect(lambda: self.effect(call, right.copy()), right)
        if isinstance(found, np.ndarray):
            self.past[kind].append(found)
        return found
