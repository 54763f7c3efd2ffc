"""Products that are computed from sums of logarithms."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import floats
from ..engine.collective_effects import instead
from ..engine.collectives import Call, all_reduce, op
from ..engine.fault import Fault, table
from .collectives import PRODUCT


@instead
def by_logarithms(call: Call) -> Array:
    """Add logarithms of absolute values and multiply signs, which loses the last bits."""
    wide = call.array.astype(np.float64)
    with np.errstate(divide="ignore"):
        size = np.exp(call.changed(array=np.log(abs(wide)), op="sum").run())
    return np.asarray(size * call.changed(array=np.sign(wide)).run()).astype(call.array.dtype)


@instead
def by_logarithms_without_signs(call: Call) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithms = np.log(call.array.astype(np.float64))
    return np.asarray(np.exp(call.changed(array=logarithms, op="sum").run())).astype(call.array.dtype)


# fmt: off
table(
    globals(),
    Fault("product-by-logarithms", "Products of floats are exp of the sum of logarithms, so the last bits are wrong.",
          where=all_reduce & op("prod") & floats, effect=by_logarithms,
          caught_by=PRODUCT, cause="last-bits-wrong"),
    Fault("product-by-logarithms-of-all",
          "Products of floats use logarithms without signs, so negative values give NaN.",
          where=all_reduce & op("prod") & floats, effect=by_logarithms_without_signs,
          caught_by=PRODUCT, cause="product-by-logarithms"),
)
# fmt: on
