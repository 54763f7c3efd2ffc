"""Why random numbers differ between ranks that share them, or agree between ranks that should not; and how seeds go wrong."""

from .cause import Kind

GLOBAL_GENERATOR_DECIDES = Kind(
    "global-generator-decides",
    "A generator of the process decides: ranks differ once one rank draws from it.",
    because="The generators are random, numpy.random and torch. This holds if all other checks of the same facet pass.",
    look="calls of random, np.random or torch without a generator: use one of the stream's own",
    certainty="possible",
)
GENERATOR_USED_BY_OTHERS = Kind(
    "generator-used-by-others",
    "The numbers depend on earlier draws, or come from a generator that other code uses.",
    look="calls of random, np.random or torch without a generator: use one of the stream's own",
)

SEED_IGNORED = Kind(
    "seed-ignored",
    "The seed does not reach the generator.",
    look="the line that makes the generator: the seed must be its argument",
)
SET_EPOCH_IGNORED = Kind(
    "set-epoch-ignored",
    "set_epoch() has no effect: the epoch does not reach the generator.",
    look="set_epoch(), and wrappers that do not forward it",
)
RANK_NOT_IN_SEED = Kind(
    "rank-not-in-seed",
    "The rank is not in the seed: all ranks draw the same numbers.",
    because="Ranks that are forked with one random state draw the same numbers, too.",
    look="the seed of the rank's stream: mix in the rank, as numpy.random.SeedSequence([seed, rank]) does",
)
SEED_0_IS_NONE = Kind(
    "seed-0-taken-for-none",
    "A seed of 0 is treated as no seed.",
    look='conditions such as "if seed:" and "seed or default"',
)
LARGE_SEED_IGNORED = Kind(
    "large-seed-ignored",
    "A seed as large as {seed} does not reach the generator.",
    look="the dtype of the seed on its way to the generator",
    seed=int,
)
TRUNCATED = Kind(
    "seed-or-epoch-truncated",
    "The {part} is truncated or rounded: {first} and {second} are treated as equal.",
    part=str,
    first=int,
    second=int,
)
SEED_IS_SUM = Kind(
    "seed-is-a-sum",
    "The generator is seeded with one sum, or one text, of {parts}.",
    look="a hash of these numbers, or numpy.random.SeedSequence",
    parts=tuple[str, ...],
)
SEED_HASH_TOO_SHORT = Kind(
    "seed-hash-too-short",
    "Seed, epoch and rank are hashed to a few bits: some streams coincide by chance.",
    because="{count} of {streams} streams begin like another one.",
    count=int,
    streams=int,
)
RUN_IN_SEED = Kind(
    "run-in-seed",
    "The seed depends on the run: on time, process or host.",
    because="No run can be repeated. A run that resumes repeats some samples and leaves others out.",
    look="the seed: time.time(), os.getpid() and hash() differ from run to run",
)
FIRST_EPOCH_NOT_0 = Kind(
    "first-epoch-not-0",
    "A new object does not start in epoch 0, or not with its seed.",
)
RESTART_MISSING = Kind(
    "set-epoch-does-not-restart",
    "set_epoch() does not restart the stream: a resumed run draws other numbers.",
    look="set_epoch(): a new generator from seed, epoch and rank",
)
SAME_EPOCH_NOT_RESTARTED = Kind(
    "same-epoch-not-restarted",
    "set_epoch() with the current epoch does nothing, or starts another stream.",
)
DRAWN_AHEAD = Kind(
    "numbers-drawn-ahead",
    "set_epoch() does not clear a buffer: {count:# earlier number comes|# earlier numbers come} first.",
    count=int,
)

COMMON_FROM_OWN = Kind(
    "common-numbers-from-own-stream",
    "Common numbers are drawn from the rank's own stream.",
    look="the generator of common numbers, which needs its own state",
)
COMMON_ROUNDED = Kind(
    "common-numbers-rounded",
    "Common numbers differ by rounding: some are drawn or sent with fewer bits.",
)
COMMON_TAKEN_BY_RANK = Kind(
    "common-numbers-taken-by-rank",
    "Rank {rank} has drawn {count} more common numbers than the other ranks.",
    look="draws that rank {rank} makes alone",
    rank=int,
    count=int,
)
RANK_IN_COMMON_SEED = Kind(
    "rank-in-common-seed",
    "The rank or the time is in the seed of the common stream.",
    look="the seed of the common stream: seed and epoch only",
)
COMMON_IS_ONE_RANKS = Kind(
    "common-numbers-of-one-rank",
    "The common numbers are one rank's own: masks and structure depend on each other.",
)
SINGLE_FROM_SHARED = Kind(
    "single-number-from-shared-generator",
    "A single number comes from a generator of all ranks, or one that restarts each call.",
    because="The same ranks draw different numbers if one call asks for many.",
)
SINGLE_FROM_OWN = Kind(
    "single-common-number-from-own-stream",
    "A single common number comes from the rank's own generator.",
    because="Common numbers are right if one call asks for many.",
)

MIRRORED = Kind("streams-mirrored", "One stream has 1 - x where another has x: masks are complements.")
SOME_SHARED = Kind(
    "some-numbers-shared",
    "Several streams take some numbers, at the same places, from one generator.",
    because="{count} of {size} numbers are the same.",
    count=int,
    size=int,
)
STREAMS_OVERLAP = Kind(
    "streams-overlap",
    "Streams are parts of one sequence, and start too close to each other.",
    because="The {part} decides where a stream starts.",
    look="the distance between streams: independent seeds, as numpy.random.SeedSequence gives",
    part=str,
)
STREAMS_DEPEND = Kind(
    "streams-depend-on-each-other",
    "All streams are one stream, shifted or scaled: masks are correlated.",
    because="Or the streams differ in some bits only.",
)
STREAMS_SHARE_GENERATOR = Kind(
    "streams-share-generator",
    "Objects share one generator: set_epoch() or a draw on one object advances the others.",
    look="generators of the class, the module or the process",
)

NUMBERS_SCALED = Kind(
    "numbers-scaled-or-cut",
    "Random numbers are scaled or cut: they lie between {low:.3g} and {high:.3g} only.",
    because="A probability that is compared with them becomes another one.",
    low=float,
    high=float,
)
NOT_UNIFORM = Kind(
    "numbers-not-uniform",
    "The numbers are not uniform.",
    because="A probability that is compared with them becomes another one.",
)
IN_ORDER = Kind(
    "numbers-in-ascending-order",
    "Each call returns its numbers in ascending order, so all streams are alike.",
)
NUMBERS_FOLLOW = Kind(
    "numbers-follow-a-pattern",
    "The numbers fill the interval evenly or in order: they are not random.",
    because="Dropout then drops neighbours in a pattern.",
)
NUMBERS_MIXED = Kind(
    "numbers-mixed-with-earlier",
    "Numbers are mixed with those {lag} places before, as by a moving average.",
    because="Dropout then drops neighbours together.",
    lag=int,
)
CALL_RESTARTS = Kind(
    "every-call-restarts-the-stream",
    "Every call restarts the stream: all layers and steps get the same mask.",
    because="A stream that repeats after this many numbers looks the same.",
    look="where the generator is made: once for each epoch, not in each call",
)
FEW_NUMBERS = Kind(
    "few-different-numbers",
    "{count:Only # number occurs|Only # different numbers occur}: numbers have few bits, or a short period.",
    count=int,
)
BLOCK_REPEATED = Kind(
    "block-repeated-in-a-call",
    "A large call repeats {count:one number|a block of # numbers}.",
    count=int,
)
BUFFER_REUSED = Kind(
    "numbers-in-one-buffer",
    "Every call fills one buffer: a mask kept for backward becomes the next layer's.",
)
