"""Tables of hypotheses about ranks that fail, hang, raise an error or do not start, and about the launcher that reports them."""

from __future__ import annotations

from .. import failed_ranks, lifecycle, rendezvous
from ..errors import backwards, invalid_results, other_errors
from ..errors import collectives as errors_of_collectives

OF_A_FAILED_RANK = (
    failed_ranks.method_missing,
    failed_ranks.result_violates_contract,
    failed_ranks.message_too_large,
    failed_ranks.uncaught_compiled_error,
    failed_ranks.crashed,
    failed_ranks.rank_died,
    failed_ranks.rank_raised,
)
"""Of a rank that failed without hanging: the certain facts."""

OF_A_HANG = (
    failed_ranks.group_waits_without_peers,
    failed_ranks.waits_for_a_program,
    failed_ranks.imports_modules,
    failed_ranks.still_exchanges_messages,
    failed_ranks.close_waits,
    failed_ranks.local_operation_does_not_end,
    failed_ranks.waits_without_peers,
    failed_ranks.sent_message_lost,
    failed_ranks.broadcast_not_forwarded,
    failed_ranks.left_collective_early,
    failed_ranks.ranks_in_different_operations,
    failed_ranks.all_send_none_receives,
    failed_ranks.all_wait_in_one_operation,
)
"""Of ranks that hang, from their positions."""

OF_AN_ERROR = (
    backwards.undefined_in_torch,
    invalid_results.empty_array,
    invalid_results.zero_dimensions,
    invalid_results.block_of_rank,
    invalid_results.result_of_another_call,
    invalid_results.not_converted_back,
    invalid_results.shape_lost,
    errors_of_collectives.root_not_found,
    errors_of_collectives.other_message,
    errors_of_collectives.layouts_differ,
    errors_of_collectives.empty_array,
    errors_of_collectives.zero_dimensions,
    other_errors.few_samples,
    backwards.no_samples,
    backwards.idle_rank_skips,
    backwards.evaluation_communicates,
    backwards.dropped_window_remembered,
    backwards.messages_differ_since,
    backwards.unused_left_out,
    other_errors.gave_up_waiting,
    other_errors.run_ended_by_some,
    other_errors.of_the_check,
)
"""Of a rank that failed in an operation of a Job."""

OF_A_DISTURBED_START = (
    rendezvous.short_read_taken_for_all,
    rendezvous.port_looked_up_free,
    rendezvous.stranger_taken_for_rank,
    rendezvous.old_world_left,
    rendezvous.name_shared_by_worlds,
    rendezvous.rank_by_arrival,
    rendezvous.early_rank_not_awaited,
)
"""Of a Job that fails after a disturbed start."""

OF_AN_UNAWARE_RANK = (
    lifecycle.death_unnoticed_in_group,
    lifecycle.noticed_by_others,
    lifecycle.death_unnoticed,
    lifecycle.ended_by_death,
)
"""Of a rank that does not raise an error after the death of another one."""

OF_UNNOTICED_MISMATCH = (
    lifecycle.error_not_passed_on,
    lifecycle.messages_unlabelled,
)
"""Of ranks that make different calls, and do not all raise."""

OF_FAILURE_AS_SUCCESS = (
    lifecycle.signal_taken_for_success,
    lifecycle.status_lost,
)
"""Of a launcher that reports a failed rank as a success."""

OF_A_MISREPORT = (
    lifecycle.own_kill_reported,
    lifecycle.ranks_awaited_in_order,
    lifecycle.output_not_passed_on,
    lifecycle.last_words_lost,
)
"""Of a launcher that misreports the first failed rank."""
