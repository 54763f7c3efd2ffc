"""Tables of hypotheses about collectives: results, messages, equal calls, barriers."""

from __future__ import annotations

from ..collectives import blocks, calls, circumstances, messages, moved_data, other_operations, reductions

OF_A_COLLECTIVE = (
    moved_data.not_received,
    moved_data.gathered_in_other_order,
    reductions.reduction_ignored,
    reductions.other_extreme,
    reductions.zeros_left_out_of_product,
    reductions.narrow_sum,
    reductions.integers_computed_otherwise,
    reductions.divided_by_other_number,
    reductions.group_ignored,
    reductions.rank_counted_twice,
    reductions.means_of_means,
    reductions.other_datatype,
    reductions.rank_left_out,
    reductions.one_received_twice,
    blocks.gathered_too_early,
    blocks.block_of_other_reduction,
    blocks.block_cut_elsewhere,
    blocks.block_aligned,
    blocks.block_of_narrow_sum,
    blocks.block_of_other_rank,
    reductions.infinity_or_late_value,
    other_operations.memory_shared,
    other_operations.operations_mixed_up,
    reductions.wrong_divisor,
    reductions.two_ranks_added,
)
"""Of a result of a collective on one rank."""

OF_AN_EXPLAINED_RESULT = (
    circumstances.product_by_logarithms,
    circumstances.product_rounded,
    circumstances.wait_returns_early,
    circumstances.as_of_values,
)
"""Of such a result, after the hypotheses about its values."""

OF_A_MESSAGE = (
    messages.overwritten_before_sent,
    messages.nothing_received,
    messages.layout_of_message_ignored,
    messages.wrong_sender,
    messages.overtaken,
)
"""Of an array that one rank has sent to another."""

OF_EQUAL_CALLS = (
    calls.first_result_again,
    calls.earlier_result,
    calls.own_array_returned,
    calls.zero_result,
    calls.other_result,
)
"""Of the wrong result of one of many equal calls."""

OF_AN_EARLY_BARRIER = (
    circumstances.barrier_gave_up,
    circumstances.barrier_waits_for_some,
    circumstances.barrier_does_not_block,
)
"""Of a barrier that a rank left before another one entered."""
