"""Collectives over a transport that is told the dtype of an array in its own terms, and is told a wrong one."""

from __future__ import annotations

import numpy as np

from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives
from .collectives import SUM


class Told(PassThrough):
    """Integers of 64 bits go under another name."""

    told = "int64"

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if array.dtype != np.int64 or op != "sum":
            return super().all_reduce(array, op, group=group)
        bits = np.ascontiguousarray(array).reshape(-1).view(self.told)
        with np.errstate(all="ignore"):
            return super().all_reduce(bits, op, group=group).view(np.int64).reshape(array.shape)


@collectives("int64-told-as-double", SUM, words="the bits of int64 were reduced as those of float64")
class ToldAsDouble(Told):
    """What has eight bytes is MPI.DOUBLE."""

    told = "float64"


@collectives("int64-told-as-two-ints", SUM, words="the bits of int64 were reduced as those of int32")
class ToldAsTwoInts(Told):
    """MPI.INT, and twice as many of them: no carry goes from one half to the other."""

    told = "int32"
