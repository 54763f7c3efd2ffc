"""Collectives that look at what arrays hold, and go a shorter way with zeros, or with one number again and again."""

from __future__ import annotations

import numpy as np

from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives

HOLDS = "check_what_arrays_hold_changes_no_result"
FEW = 16
"""One number of so many is worth an index."""


def sparse(array: Array) -> bool:
    """Whether most of it is zero, of either sign."""
    return bool(FEW * np.count_nonzero(array) < array.size > FEW)


def flat(array: Array) -> Array:
    """A copy, row by row."""
    return np.array(array, order="C").reshape(-1)


@collectives("indices-of-two-bytes", HOLDS, words="made shorter on the way")
class IndicesOfTwoBytes(PassThrough):
    """What is mostly zeros goes as numbers and their places, for which there are two bytes."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if sparse(array):
            values = flat(array)
            places = np.flatnonzero(values)
            there = np.zeros_like(values)
            there[places.astype(np.uint16)] = values[places]
            array = there.reshape(array.shape)
        return super().all_reduce(array, op, group=group)


@collectives("room-for-few-nonzeros", HOLDS, words="zero: never written")
class RoomForFew(PassThrough):
    """The root's numbers that are not zero go into a message that has room for one of 32; others are left out."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        if sparse(array) and self.rank == root:
            values = flat(array)
            values[np.flatnonzero(values)[max(1, values.size // 32) :]] = 0
            array = values.reshape(array.shape)
        return super().broadcast(array, root, group=group)


@collectives("alike-at-both-ends", HOLDS, words="mostly zeros, or one number")
class AlikeAtBothEnds(PassThrough):
    """An array that begins, ends and has in its middle the same number is taken for one that holds nothing else."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        values = flat(array)
        if values.size > FEW and values[0] == values[-1] == values[values.size // 2] == values[values.size // 3]:
            array = np.full_like(array, values[0])
        return np.asarray(self.comm.all_gather(array, group=group))


@collectives("zero-is-no-contribution", HOLDS, words="arrays that are mostly zeros")
class ZeroIsNoContribution(PassThrough):
    """A rank whose array is zeros throughout has nothing to give: the others reduce without it."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op not in ("min", "max"):
            return super().all_reduce(array, op, group=group)
        rows = [row for row in self.comm.all_gather(array, group=group) if row.any()]
        extreme = np.minimum if op == "min" else np.maximum
        return np.asarray(extreme.reduce(rows, axis=0)) if rows else np.zeros_like(array)


@collectives("each-rank-takes-its-own-way", HOLDS, words="goes another way than the others")
class EachItsOwnWay(PassThrough):
    """Who has mostly zeros shares out places and numbers; who has not sums up: every rank as it finds its own array."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "sum" or not sparse(array):
            return super().all_reduce(array, op, group=group)
        return np.asarray(self.comm.all_gather(array, group=group).sum(axis=0, dtype=array.dtype))


# ------------------------------------------------------------------------------------------------- correct, but unusual


@collectives("zeros-are-left-out-by-agreement")
class LeftOutByAgreement(PassThrough):
    """Where all ranks have mostly zeros they gather places and numbers, as many as who has most, and add them up."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        few = sparse(array) and array.dtype.kind == "f" and bool(np.isfinite(array).all())
        count = np.array([np.count_nonzero(array) if few else -1, not few], np.int64)
        most, refused = super().all_reduce(count, "max", group=group).tolist()
        if op != "sum" or refused:
            return super().all_reduce(array, op, group=group)
        values = flat(array)
        places = np.flatnonzero(values)
        sent = np.full(most, -1, np.int64), np.zeros(most, array.dtype)
        sent[0][: len(places)], sent[1][: len(places)] = places, values[places]
        total = np.zeros_like(values)
        all_places, all_values = (self.comm.all_gather(each, group=group) for each in sent)
        for at, numbers in zip(all_places, all_values, strict=True):
            total[at[at >= 0]] += numbers[at >= 0]
        return total.reshape(array.shape)


@collectives("one-number-goes-once")
class OneNumberGoesOnce(PassThrough):
    """A root whose array holds the same bits throughout says so, and sends them once."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        values = flat(array)
        alike = values.size > 0 and values.tobytes() == values[:1].tobytes() * values.size
        if not super().broadcast(np.array([alike], np.int32), root, group=group)[0]:
            return super().broadcast(array, root, group=group)
        return np.resize(super().broadcast(values[:1], root, group=group), array.shape)
