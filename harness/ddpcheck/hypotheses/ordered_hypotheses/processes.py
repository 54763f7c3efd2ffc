"""Tables of hypotheses about the bytes that ranks send, and about the state of their processes."""

from __future__ import annotations

from .. import process_state, traffic

OF_MORE_SENT = (
    traffic.everything_through_one_rank,
    traffic.known_algorithm,
    traffic.sent_twice,
    traffic.more_than_least,
)
"""Of more bytes than a collective needs."""

OF_BYTES_INSIDE_NO_SYNC = (
    traffic.sent_after_backward,
    traffic.reduced_inside_no_sync,
    traffic.sends_inside_no_sync,
)
"""Of bytes that are sent inside no_sync()."""

OF_GROWING_BYTES = (
    traffic.sent_in_later_steps,
    traffic.grows_with_steps,
)
"""Of equal training steps, the last of which sends more bytes than the first."""

OF_TOO_FEW_COUNTED = (
    traffic.partly_counted,
    traffic.none_counted,
)
"""Of fewer bytes, by counts(), than any algorithm sends."""

OF_A_WRONG_COUNT = (
    traffic.counts_scaled,
    traffic.not_counted,
)
"""Of a number of bytes that counts() tells, and that is not the number sent."""

OF_MANY_MESSAGES = (
    traffic.gradients_alone,
    traffic.small_groups,
)
"""Of many messages in a backward of small gradients."""

OF_A_CHANGED_PROCESS = (
    process_state.generators_changed,
    process_state.settings_changed,
)
"""Of generators and settings that change: all that fit."""

OF_A_GROWING_PROCESS = (
    process_state.memory_grows,
    process_state.resource_left,
)
"""Of a resource of which each call leaves more behind."""
