"""Products that are computed as sums of logarithms."""

from __future__ import annotations

import numpy as np

from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives
from .collectives import PRODUCT


@collectives("product-by-logarithms", PRODUCT, words="exp of a sum of logarithms")
class ByLogarithms(PassThrough):
    """Logarithms of absolute values are summed up, and signs counted: the last bits are lost."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "prod" or array.dtype.kind != "f":
            return super().all_reduce(array, op, group=group)
        wide = array.astype(np.float64)
        with np.errstate(divide="ignore"):
            size = np.exp(super().all_reduce(np.log(abs(wide)), group=group))
        return np.asarray(size * super().all_reduce(np.sign(wide), "prod", group=group)).astype(array.dtype)


@collectives("product-by-logarithms-of-all", PRODUCT, words="wherever a rank has a negative number")
class ByLogarithmsOfAll(PassThrough):
    """Nobody has thought of negative numbers."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "prod" or array.dtype.kind != "f":
            return super().all_reduce(array, op, group=group)
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithms = np.log(array.astype(np.float64))
        return np.asarray(np.exp(super().all_reduce(logarithms, group=group))).astype(array.dtype)
