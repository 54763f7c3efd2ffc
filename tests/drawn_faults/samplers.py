"""Samplers that are wrong only under some circumstance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from effect_reports import judge_effect

from ddpcheck.contract import Capabilities
from ddpcheck.contract.adapter import Facets

Reading = dict[str, Any]
"""One reading: length, shuffle, seed, drop_last, epoch, rank, world; times, the number of readings of this sampler;
number, the number of this sampler in the process; backwards, whether the epoch is lower than the one before.
"""


def promised(right: Capabilities) -> Capabilities:
    """The promises of these adapters, a subset of the reference's."""
    return right.of_facets("sampler").but(sampler_state=False)


CIRCUMSTANCES: dict[str, Callable[[Reading], Any]] = {
    "the length is odd": lambda r: r["length"] % 2,
    "the length is a multiple of the world size": lambda r: r["length"] % r["world"] == 0,
    "the length is no multiple of the world size": lambda r: r["length"] % r["world"],
    "one sample is left over": lambda r: r["length"] % r["world"] == 1,
    "there are more than 50 samples": lambda r: r["length"] > 50,
    "there are more than 1000 samples": lambda r: r["length"] > 1000,
    "there are more than 65536 samples": lambda r: r["length"] > 1 << 16,
    "it shuffles": lambda r: r["shuffle"],
    "it does not shuffle": lambda r: not r["shuffle"],
    "drop_last is set": lambda r: r["drop_last"],
    "drop_last is set, and samples are left over": lambda r: r["drop_last"] and r["length"] % r["world"],
    "drop_last is not set, and samples are left over": lambda r: not r["drop_last"] and r["length"] % r["world"],
    "the seed is 0": lambda r: r["seed"] == 0,
    "the seed is odd": lambda r: r["seed"] % 2,
    "the seed is above 1000": lambda r: r["seed"] > 1000,
    "the seed has 32 bits": lambda r: r["seed"] >= 1 << 31,
    "it is epoch 0": lambda r: r["epoch"] == 0,
    "it is epoch 1": lambda r: r["epoch"] == 1,
    "the epoch is above 2": lambda r: r["epoch"] > 2,
    "the epoch is above 255": lambda r: r["epoch"] > 255,
    "the epoch is odd": lambda r: r["epoch"] % 2,
    "the epoch is lower than the one before": lambda r: r["backwards"],
    "it is read for the second time": lambda r: r["times"] == 2,
    "it is read for the third time or later": lambda r: r["times"] > 2,
    "it is not the first sampler": lambda r: r["number"] > 1,
    "it is the tenth sampler or a later one": lambda r: r["number"] >= 10,
    "seed and epoch add up to more than 10": lambda r: r["seed"] + r["epoch"] > 10,
}


def _order(r: Reading, *stream: int) -> Any:
    return np.random.default_rng(stream).permutation(r["length"]) if r["shuffle"] else np.arange(r["length"])


def _share(r: Reading, order: Any) -> list[int]:
    each = r["length"] // r["world"] if r["drop_last"] else -(-r["length"] // r["world"])
    return np.resize(order, each * r["world"])[r["rank"] :: r["world"]].tolist() if len(order) else []


def _right(r: Reading) -> list[int]:
    return _share(r, _order(r, r["seed"], r["epoch"]))


EFFECTS: dict[str, Callable[[Reading, list[int]], Any]] = {
    "the first index comes twice": lambda r, right: [*right[:1], *right[:-1]],
    "the last index is missing": lambda r, right: right[:-1],
    "there is one more index": lambda r, right: [*right, *right[:1]],
    "the last index is 0": lambda r, right: [*right[:-1], *[0][: len(right)]],
    "all indices are 1 too large": lambda r, right: [index + 1 for index in right],
    "all have the share of rank 0": lambda r, right: _right({**r, "rank": 0}),
    "the rank is in the seed": lambda r, right: _share(r, _order(r, r["seed"], r["epoch"], r["rank"])),
    "the epoch is ignored": lambda r, right: _share(r, _order(r, r["seed"], 0)),
    "the seed is ignored": lambda r, right: _share(r, _order(r, 0, r["epoch"])),
    "nothing is shuffled": lambda r, right: _share(r, np.arange(r["length"])),
    "it shuffles all the same": lambda r, right: _right({**r, "shuffle": True}),
    "the order is of the process's generator": lambda r, right: _share(r, np.random.permutation(r["length"])),
    "odd ranks share another order": lambda r, right: _right({**r, "seed": r["seed"] + r["rank"] % 2}),
    "drop_last is turned round": lambda r, right: _right({**r, "drop_last": not r["drop_last"]}),
    "all but rank 0 have one less": lambda r, right: right if r["rank"] == 0 else right[:-1],
    "indices are floats": lambda r, right: [float(index) for index in right],
    "there are none": lambda r, right: [],
    "an error is raised": lambda r, right: right[len(right)],
}


def wrapped(right: Facets, circumstance: str, effect: str) -> dict[str, Any]:
    """The facet, and no others."""
    made = 0

    def make(length: int, *, shuffle: bool, seed: int, drop_last: bool) -> _Sampler:
        nonlocal made
        made += 1
        reading = {"length": length, "shuffle": shuffle, "seed": seed, "drop_last": drop_last, "number": made}
        return _Sampler(
            reading | {"rank": right.rank, "world": right.world_size}, CIRCUMSTANCES[circumstance], EFFECTS[effect]
        )

    return {"make_sampler": make}


class _Sampler:
    def __init__(self, reading: Reading, when: Callable[[Reading], Any], effect: Callable[..., Any]) -> None:
        self.reading = {**reading, "epoch": 0, "times": 0, "backwards": False}
        self.when, self.effect = when, effect

    def set_epoch(self, epoch: int) -> None:
        self.reading |= {"backwards": epoch < self.reading["epoch"], "epoch": epoch}

    def __iter__(self) -> Iterator[int]:
        self.reading["times"] += 1
        return iter(self._given(self.reading))

    def __len__(self) -> int:
        return len(self._given({**self.reading, "times": self.reading["times"] + 1}))

    def _given(self, reading: Reading) -> Any:
        right = _right(reading)
        if not self.when(reading):
            return right
        return judge_effect(lambda: self.effect(reading, list(right)), right)
