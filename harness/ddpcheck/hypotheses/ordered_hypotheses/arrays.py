"""Tables of hypotheses about arrays: one wrong array, and arrays of one result beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...causes.cause import Given
from .. import observed_arrays
from ..arrays import (
    alternatives,
    factors,
    few_bits,
    lost_precision,
    low_rank,
    offset,
    patterns,
    special_values,
    tiny_updates,
    wrong_elements,
)
from ..arrays.evidence import WrongArray

Questions = tuple[Callable[[WrongArray], Iterator[Given]], ...]

OF_MOVED_DATA: Questions = (
    alternatives.every_bit,
    patterns.permuted,
    lost_precision.sent_as,
)
"""Of an array that was only moved, as by a broadcast: tried before all others."""

OF_MOVED_LAST_BITS: Questions = (patterns.changed_on_the_way,)
"""Of such an array that is right but for last bits."""

OF_LAST_BITS: Questions = (
    alternatives.last_bits,
    patterns.tiny_differences,
)
"""Of an array that was computed, and is right but for last bits."""

OF_WRONG_ELEMENTS: Questions = (
    special_values.infinity_becomes_nan,
    alternatives.every_element,
    special_values.nonfinite,
    special_values.nan_lost,
    factors.world_size,
    special_values.not_reduced,
    tiny_updates.crept,
    alternatives.nearest,
    special_values.part_not_reduced,
    factors.rare_factors,
    factors.any_factor,
    alternatives.wrong_elements,
    wrong_elements.seams,
    factors.world_size_in_part,
    alternatives.within_rounding,
    lost_precision.narrowed,
    patterns.permuted,
    patterns.clamped,
    patterns.weighted,
    wrong_elements.shifted,
    patterns.zeros,
    patterns.cut_off,
    patterns.thinned,
    low_rank.low_rank,
    patterns.changed_by,
    offset.offset,
    few_bits.whole_numbers,
    few_bits.few_bits_in_integers,
    few_bits.fixed_point,
    few_bits.few_bits_in_floats,
    wrong_elements.remainder,
    wrong_elements.tail,
)
"""Of any other array."""

OF_A_MISSING_GRADIENT = (
    observed_arrays.zeros_for_unused,
    observed_arrays.use_told_by_value,
    observed_arrays.gradient_dropped,
)
"""Of a gradient that should exist, and does not."""

OF_ONE_OF_SEVERAL_ARRAYS = (
    observed_arrays.no_gradients_anywhere,
    observed_arrays.other_ranks_gradient,
    observed_arrays.reduced_only_if_all_use,
    observed_arrays.equal_on_all_ranks,
    observed_arrays.others_are_averaged,
    observed_arrays.as_alone,
)
"""Of a wrong array beside others."""

OF_SEVERAL_ARRAYS = (
    observed_arrays.clipped_unasked,
    observed_arrays.own_value_in_update,
    observed_arrays.update_not_shared,
)
"""Of all wrong arrays of an observation: further causes, all that fit."""
