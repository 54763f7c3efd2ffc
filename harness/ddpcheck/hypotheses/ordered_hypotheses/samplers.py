"""Tables of hypotheses about samplers: samples, lengths, orders, resuming."""

from __future__ import annotations

from ..samplers import orders, resuming, shares

OF_ABSENT_SAMPLES = (
    shares.absent_past_few_bits,
    shares.same_share,
    shares.rank_stays_in_epoch,
    shares.repeated_on_rank,
    shares.orders_apart,
    shares.tail_absent,
)
"""Of samples that go to no rank."""

OF_ANOTHER_LENGTH = (
    shares.whole_data_set,
    shares.reading_empty,
    shares.divisible_padded,
    shares.order_comes_twice,
    shares.divisible_cut,
    shares.padding_taken_once,
    shares.padded_too_much,
    shares.not_padded,
    shares.not_cut,
    shares.remainder_on_one_rank,
    shares.sharded_twice,
)
"""Of a rank that has more or fewer samples than the remainder rule allows."""

OF_ANOTHER_TOTAL = (
    shares.remainder_lost,
    shares.starved_ranks_filled,
    shares.remainder_padded,
)
"""Of ranks that have more or fewer samples together than there are."""

OF_ANOTHER_LEN = (
    orders.length_changes,
    orders.length_apart,
)
"""Of len() of a sampler that gives another number of samples."""

OF_A_LOST_HEAD = (
    orders.head_cut,
    orders.natural_order_reversed,
    orders.shuffled_unasked,
)
"""Of orders without sample 0 that should be natural ones, by rank."""

OF_AN_UNSHUFFLED_ORDER = (
    orders.natural_order_reversed,
    orders.natural_order_comes_twice,
    orders.begins_again_from_the_front,
    orders.shuffled_unasked,
)
"""Of orders that should ascend, by rank."""

OF_EQUAL_EPOCHS = (
    orders.set_epoch_ignored,
    orders.epoch_times_seed,
    orders.lower_epoch_ignored,
    orders.epoch_0_is_none,
    orders.epoch_truncated,
)
"""Of epochs that have one order."""

OF_EQUAL_SEEDS = (
    orders.epoch_not_shuffled,
    orders.seed_ignored,
    orders.seed_0_is_none,
    orders.seed_truncated,
)
"""Of seeds that have one order."""

OF_THE_SAME_ORDER = (
    orders.seed_ignored_at_length,
    orders.epoch_ignored_at_length,
)
"""Of two readings that have one order, at one number of samples."""

OF_THE_SAME_SUBSET = (
    orders.one_order_moved,
    orders.shuffled_within_shares,
)
"""Of a rank that has the same samples in two epochs."""

OF_AN_UNTOLD_ORDER = (
    orders.epoch_of_another_sampler,
    orders.first_epoch_not_0,
)
"""Of a new sampler's order before set_epoch(), which is not that of epoch 0."""

OF_ANOTHER_PIECE = (
    resuming.loaded_position_not_saved,
    resuming.position_of_epoch_before,
    resuming.end_begins_again,
    resuming.position_not_restored,
    resuming.state_narrowed,
    resuming.rest_reshuffled,
    resuming.position_since_load,
    resuming.position_of_another_rank,
    resuming.resumed_elsewhere,
    resuming.nothing_left,
    resuming.rest_of_other_epoch,
    resuming.rest_padded,
    resuming.resumed_order_differs,
)
"""Of indices that a sampler with a loaded state gives in the epoch of this state."""

OF_ANOTHER_NEXT_EPOCH = (
    resuming.set_epoch_lost,
    resuming.order_of_next_epoch_differs,
    resuming.loaded_position_stays,
)
"""Of indices that it gives after this epoch."""

OF_ANOTHER_EPOCH_AT_ONCE = (
    resuming.set_epoch_lost_at_once,
    resuming.loaded_position_in_next_epoch,
)
"""Of indices that it gives in an epoch that is set straight after loading."""
