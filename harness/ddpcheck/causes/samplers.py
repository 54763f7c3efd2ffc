"""Why a sampler deals samples wrongly: shares, order, length, and the state of an epoch that was interrupted."""

from .cause import Kind

WHOLE_DATA_SET = Kind(
    "whole-data-set-on-rank",
    "Rank {rank} reads the whole data set: samples are not sharded.",
    look="the slice of the order that a rank takes: order[rank::world_size]",
    rank=int,
)
SHARDED_TWICE = Kind(
    "sharded-twice",
    "Each rank's share is sharded a second time.",
    look="what the loader and the data set do with the rank: only one of them may share out samples",
)
SAME_SHARE = Kind(
    "same-share-on-every-rank",
    "Every rank takes the same share: the rank is ignored, or read too early.",
    look="the place where the sampler gets its rank",
)
READING_EMPTY = Kind(
    "second-reading-empty",
    "A second reading yields no samples: the iterator is exhausted.",
    look="__iter__(): it must make a new iterator on each call",
)
RANKS_DISAGREE = Kind(
    "ranks-disagree-on-order",
    "The ranks disagree on the order: each shuffles with its own seed or generator.",
    look="the seed of the shuffle: seed and epoch only, without the rank",
)
DRAWN_WITH_REPLACEMENT = Kind(
    "drawn-with-replacement",
    "Samples are drawn with replacement.",
    look="how the order is drawn: a permutation, not random indices",
    certainty="possible",
)
REPEATED_ON_RANK = Kind(
    "samples-repeated-on-rank",
    "Rank {rank} reads some samples twice and skips others.",
    because="An order is cut and joined wrongly, or samples are drawn with replacement.",
    rank=int,
)
RANK_STAYS_IN_EPOCH = Kind(
    "rank-stays-in-epoch",
    "set_epoch() has no effect on {ranks:rank #, which stays|ranks #, which stay} in an earlier epoch.",
    look="conditions on the rank in set_epoch()",
    ranks=tuple[int, ...],
)
INDICES_NARROWED = Kind(
    "indices-narrowed",
    "The {place} holds indices of {bits} bits: larger ones do not fit.",
    look="the dtype of indices",
    place=str,
    bits=int,
)

DIVISIBLE_PADDED = Kind(
    "divisible-length-padded",
    "One more round is padded, although the world size divides the length.",
    look="the rounding of the length: -(-length // world_size), not length // world_size + 1",
)
ORDER_COMES_TWICE = Kind(
    "order-comes-twice",
    "A length that divides evenly is padded, too: the whole order comes twice.",
    look="slices such as order[-padding:], which are the whole order if padding is 0",
)
DIVISIBLE_CUT = Kind(
    "divisible-length-cut",
    "One round is cut, although the world size divides the length.",
    look="the rounding of the length: length // world_size",
)
PADDING_TAKEN_ONCE = Kind(
    "padding-taken-once",
    "Padding repeats the order only once: with few samples it must repeat several times.",
    look="the padding: as many copies of the order as it needs",
)
PADDED_TOO_MUCH = Kind(
    "padded-too-much",
    "Rank {rank} gets more padding than equal shares need.",
    because="The padding of other ranks' shares may be included.",
    rank=int,
)
NOT_PADDED = Kind(
    "not-padded",
    "Nothing is padded: ranks run out of samples at different times, or lose the tail.",
    look="the padding of the order to a multiple of the world size",
)
NOT_CUT = Kind(
    "tail-not-cut",
    "The tail is not cut: ranks get shares of different lengths.",
    because="Ranks with more samples wait for the others at the end.",
    look="the cut of the order to a multiple of the world size",
)
PADDED_NOT_CUT = Kind(
    "tail-padded-not-cut",
    "The tail is padded, not cut: the length is rounded up.",
    look="the branch for drop_last=True",
)
REMAINDER_PADDED = Kind("remainder-padded", "The shares are padded to equal lengths, against the remainder rule.")
STARVED_RANKS_FILLED = Kind(
    "starved-ranks-filled",
    "{ranks:Rank #, for which no sample is left, takes|Ranks #, for which no samples are left, take} samples of others.",
    because="Such a rank falls back to the whole data set, or is padded.",
    look="conditions on an empty share",
    ranks=tuple[int, ...],
)
REMAINDER_ON_ONE_RANK = Kind(
    "remainder-on-one-rank",
    "Shares are rounded up or down, and one rank alone gets the rest.",
)
TAIL_LOST = Kind(
    "tail-lost",
    "{count:The last sample of the order goes|The last # samples of the order go} to no rank.",
    look="the slice of each rank, and the rounding of the number of samples",
    count=int,
)
HEAD_CUT = Kind("head-cut", "The first samples are dropped, not the last.")
CUT_BEFORE_SHUFFLE = Kind(
    "cut-before-shuffle",
    "The tail is cut before the shuffle: its samples are never seen.",
    look="the order of steps: shuffle first, then cut",
)

LENGTH_CHANGES = Kind(
    "length-changes",
    "len() is right before the first reading, but changes with readings or epochs.",
)
LENGTH_APART = Kind(
    "length-computed-apart",
    "len() is computed separately from the order, and differs from its length.",
    because="A loop that trusts len() stops early, or waits for other ranks.",
    look="len(): the length of the rank's share, from the same rule as the order",
)
LENGTH_LATE = Kind(
    "length-known-late",
    "len() is right only after the order was made.",
    because="Learning-rate schedules need the length before the first epoch.",
)

EPOCH_TIMES_SEED = Kind(
    "epoch-times-seed",
    "With a seed of 0 set_epoch() has no effect: epoch and seed are multiplied.",
    look="how seed and epoch are combined: a sequence, such as numpy.random.default_rng([seed, epoch])",
)
EPOCH_0_IS_NONE = Kind(
    "epoch-0-taken-for-none",
    "Epoch 0 is treated as no epoch: set_epoch(0) changes nothing.",
    look='conditions such as "if epoch:"',
)
LOWER_EPOCH_IGNORED = Kind(
    "lower-epoch-ignored",
    "set_epoch() of an epoch before the present one has no effect.",
    because="A run that starts again, or resumes from an earlier checkpoint, reads the wrong order.",
)
EPOCH_NOT_SHUFFLED = Kind(
    "epoch-not-shuffled", "Epoch {epoch} is not shuffled: it may be treated as no epoch.", epoch=int
)
SHUFFLED_WITHIN_SHARES = Kind(
    "shuffled-within-shares",
    "Samples are dealt to ranks first, and only shuffled within each share.",
    look="the order of steps: shuffle first, then share out",
)
ONE_ORDER_MOVED = Kind(
    "one-order-for-all-epochs",
    "All epochs have one order, only reversed, rotated or dealt differently.",
)
NATURAL_ORDER_MOVED = Kind(
    "natural-order-moved",
    "The natural order is only reversed, or starts at a random sample.",
)
NATURAL_ORDER_REVERSED = Kind("natural-order-reversed", "The natural order is reversed.")
SHUFFLE_IGNORED = Kind(
    "shuffle-ignored",
    "shuffle=True has no effect: the order is the natural one.",
    look="the way of shuffle= to the code that makes the order",
)
SHUFFLED_UNASKED = Kind(
    "shuffled-unasked",
    "shuffle=False has no effect: the order is a random one.",
    look="the way of shuffle= to the code that makes the order",
)
UNSHUFFLED_ORDER_CHANGES = Kind(
    "unshuffled-order-changes",
    "The order depends on the epoch, although shuffle=False.",
)
NOT_SHUFFLED_AT_LENGTH = Kind(
    "not-shuffled-at-length",
    "The order of {length} samples is not shuffled, with drop_last={drop_last}.",
    because="Other lengths are shuffled. This epoch or seed may matter as well.",
    length=int,
    drop_last=bool,
)
IGNORED_AT_LENGTH = Kind(
    "seed-or-epoch-ignored-at-length",
    "The {part} has no effect: epoch {epochs}, {length} samples, drop_last={drop_last}.",
    because="Elsewhere the order depends on it: one of these conditions, or the seed, decides.",
    epochs=tuple[int, ...],
    part=str,
    length=int,
    drop_last=bool,
)
PARTLY_SHUFFLED = Kind("partly-shuffled", "Only a part of the order is shuffled.")
ENDS_NOT_SHUFFLED = Kind(
    "ends-not-shuffled",
    "The first or last samples are left out of the shuffle: sample {samples}.",
    samples=tuple[int, ...],
)
ORDER_DEPENDS_ON_READINGS = Kind(
    "order-depends-on-readings",
    "The order depends on earlier readings, or on a generator that other code uses.",
    look="the generator: made anew from seed and epoch for each reading",
)
SAMPLERS_SHARE_STATE = Kind(
    "samplers-share-state",
    "Samplers share their {state}: one overwrites another's.",
    look="attributes of the class or the module",
    state=str,
)
BROKEN_EPOCH_RUNS_ON = Kind(
    "broken-epoch-runs-on",
    "After a loop leaves an epoch early, the position or the generator is not reset.",
)
FIRST_SET_EPOCH_STAYS = Kind(
    "first-set-epoch-stays",
    "Until the sampler is read, only the first set_epoch() has an effect.",
)

END_BEGINS_AGAIN = Kind(
    "end-of-epoch-begins-again",
    "An epoch that was read to its end begins again after loading; nothing of it is left.",
    look="a position taken modulo the number of samples, or 0 that stands for no position",
)
SET_EPOCH_DROPS_POSITION = Kind(
    "set-epoch-drops-position",
    "set_epoch() with the loaded epoch drops the loaded position; without this call it is kept.",
    look="a set_epoch() that resets the position even if the epoch stays the same",
)
POSITION_NOT_RESTORED = Kind(
    "position-not-restored",
    "The resumed epoch starts at its first sample: the position is not saved, or not used.",
    look="the position in state() and load_state()",
)
LOADED_POSITION_NOT_SAVED = Kind(
    "loaded-position-not-saved",
    "Before a reading, state() omits a loaded position: saving again loses it.",
)
POSITION_OF_EPOCH_BEFORE = Kind(
    "position-of-epoch-before",
    "The state has the position of the epoch before: set_epoch() does not reset it.",
    because="An epoch that has just begun then counts as finished.",
)
POSITION_SINCE_LOAD = Kind(
    "position-since-last-load",
    "The position counts from the last load only, not from the epoch's start.",
    because="Samples are repeated.",
)
POSITION_OF_ANOTHER_RANK = Kind(
    "position-of-another-rank",
    "The loaded position is that of rank {rank}.",
    because="The ranks have read different numbers of samples. Reading resumes at sample {start} of the rank's share.",
    look="where the state is saved: one entry of the checkpoint for all ranks keeps the position of one",
    rank=int,
    start=int,
)
RESUMED_TOO_LATE = Kind(
    "resumed-too-late",
    "The epoch resumes {count:# sample too late: it is|# samples too late: they are} lost.",
    because="Reading resumes at sample {start} of the rank's share.",
    look="samples that are counted when prefetched, or counted on all ranks",
    count=int,
    start=int,
)
RESUMED_TOO_EARLY = Kind(
    "resumed-too-early",
    "The epoch resumes {count:# sample too early: it is|# samples too early: they are} repeated.",
    because="Reading resumes at sample {start} of the rank's share.",
    look="rounding of the position, and bits that it does not fit in",
    count=int,
    start=int,
)
NOTHING_LEFT = Kind(
    "nothing-left-when-resumed",
    "The resumed epoch is empty: {count:# sample is|# samples are} lost.",
    because="The position counts the samples of all ranks, or the epoch counts as ended.",
    count=int,
)
REST_RESHUFFLED = Kind(
    "rest-reshuffled",
    "The remaining samples come in another order: they are shuffled anew.",
    look="the order after loading: that of the whole epoch, from the saved position on",
)
REST_OF_EPOCH = Kind(
    "rest-of-another-epoch",
    "The remaining samples belong to epoch {epoch}: the state lacks the epoch, or the epoch is reset.",
    look="the epoch in state() and load_state()",
    epoch=int,
)
REST_PADDED = Kind(
    "rest-padded-again", "The remaining samples are padded again, although their number was already right."
)
RESUMED_ORDER_DIFFERS = Kind(
    "resumed-order-differs",
    "The order is another one: epoch, seed or generator are not those of the state.",
    look="epoch, seed and generator in state() and load_state()",
)
LOADED_POSITION_STAYS = Kind(
    "loaded-position-stays",
    "The loaded position also applies to the epochs after it.",
    look="the end of the resumed epoch: the position goes back to 0",
)
LOADED_LENGTH_STAYS = Kind(
    "loaded-length-stays",
    "In later epochs, len() is still the rest of the resumed epoch.",
    look="the end of the resumed epoch: the position goes back to 0",
)
SET_EPOCH_LOST_AFTER_LOAD = Kind(
    "set-epoch-lost-after-load",
    "Epoch {epoch}'s order comes again: set_epoch() does not reach the resumed sampler.",
    because="Or a counter of epochs lags behind.",
    epoch=int,
)
LOADED_POSITION_IN_NEXT_EPOCH = Kind(
    "loaded-position-in-next-epoch",
    "set_epoch() of another epoch keeps the loaded position.",
    because="A run that resumes at the end of an epoch misses the next one.",
)
STATE_MOVES_SAMPLER = Kind(
    "state-moves-sampler",
    "state() moves the sampler itself, or two samplers share their position.",
)
STATE_IS_ALIAS = Kind(
    "sampler-state-is-no-copy",
    "state() returns the sampler's own mapping, not a copy.",
    because="A checkpoint that is written or loaded later holds another position.",
    look="the mapping that state() returns: a new one",
)
