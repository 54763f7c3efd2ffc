"""Tables of hypotheses about random streams."""

from __future__ import annotations

from ..randomness import common_numbers, repeats, stream_pairs

OF_ALIKE_STREAMS = (
    stream_pairs.mirrored,
    stream_pairs.common_is_one_ranks,
    stream_pairs.some_shared,
    stream_pairs.seed_is_sum,
    stream_pairs.streams_overlap,
    stream_pairs.seed_0_is_none,
    stream_pairs.number_truncated,
    stream_pairs.number_ignored,
)
"""Of two streams of random numbers that have numbers in common."""

OF_DEPENDENT_STREAMS = (
    stream_pairs.streams_scaled,
    stream_pairs.streams_in_order,
    stream_pairs.streams_depend,
)
"""Of two streams that are alike place by place."""

OF_OTHER_NUMBERS = (
    common_numbers.drawn_ahead,
    common_numbers.this_seed_ignored,
)
"""Of numbers that a stream does not give again."""

OF_COMMON_NUMBERS = (
    common_numbers.common_rounded,
    common_numbers.common_disturbed,
)
"""Of common numbers that are not rank 0's."""

OF_SINGLE_COMMON_NUMBERS = (
    common_numbers.single_common_from_own,
    common_numbers.common_taken_by_rank,
    common_numbers.rank_in_common_seed,
)
"""Of such numbers that are drawn one by one."""

OF_SINGLE_NUMBERS = (
    repeats.common_is_one_ranks,
    repeats.single_from_shared,
    repeats.rank_not_in_seed,
)
"""Of own numbers, drawn one by one, that come again."""

OF_REPEATED_CALLS = (
    repeats.call_restarts,
    repeats.few_numbers,
)
"""Of numbers of two calls, half by each, that come again."""

OF_REPEATED_NUMBERS = (
    repeats.block_repeated,
    repeats.few_numbers,
)
"""Of many numbers of which some come again."""
