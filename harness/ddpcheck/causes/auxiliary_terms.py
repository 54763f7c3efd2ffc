"""Why an auxiliary term of a loss counts otherwise than in one process."""

from .cause import Kind

TERM_MISSING = Kind(
    "term-missing",
    "The {term} is missing in the {where}.",
    look="where gradients are gathered or recomputed apart from the loss",
    term=str,
    where=str,
)
TERM_PER_RANK = Kind(
    "term-counted-per-rank",
    "The {term} counts once for every rank in the {where}: it is multiplied by the world size.",
    term=str,
    where=str,
)
TERM_DIVIDED = Kind(
    "term-divided-by-world-size",
    "The {term} is divided by the world size once too often in the {where}.",
    term=str,
    where=str,
)
TERM_ON_ONE_RANK = Kind(
    "term-on-one-rank", "Only rank {rank} has the {term} in its {where}.", term=str, rank=int, where=str
)
TERM_SUMMED = Kind(
    "term-summed-over-samples",
    "The {term} is a sum over samples; the rest of the loss is a mean.",
    term=str,
    where=str,
)
TERM_NOT_LOSS_SCALED = Kind(
    "term-not-loss-scaled", "The {term} is not multiplied by the loss scale.", term=str, where=str
)
TERM_TWICE = Kind(
    "term-counted-twice",
    "The {term} counts twice: in two places, or once for each layer that shares a weight.",
    term=str,
    where=str,
)
TERM_WITHOUT_SAMPLES = Kind(
    "term-without-samples", "The {term} counts on ranks without samples, too.", term=str, where=str
)
TERM_OF_FROZEN_MISSING = Kind("term-of-frozen-missing", "The {term} of frozen layers is missing in the loss.", term=str)
TERM_IGNORES_WEIGHTS = Kind("term-ignores-weights", "The {term} ignores the samples' weights.", term=str, where=str)
TERM_MISSING_IN_NO_SYNC = Kind("term-missing-in-no-sync", "The {term} is left out inside no_sync.", term=str)
TERM_MISSING_IN_LAST_MICRO_BATCH = Kind(
    "term-missing-in-last-micro-batch", "The {term} is left out of the last micro-batch.", term=str
)
TERM_NOT_REDUCED = Kind(
    "term-not-reduced",
    "The {term} is this rank's own: it is added after the reduction, and ranks drift apart.",
    term=str,
)
TERM_WEIGHTED_TWICE = Kind(
    "term-weighted-twice", "The share of a rank, by samples or weights, counts twice in the {term}.", term=str
)
TERM_WEIGHTED_EQUALLY = Kind(
    "term-weighted-equally", "Ranks count equally in the {term}, but not in the rest of the loss.", term=str
)
TERM_OF_LAST_MICRO_BATCH = Kind(
    "term-of-last-micro-batch",
    "The {term} is that of the last micro-batch only.",
    because="The term is left out inside no_sync, or added once per window.",
    term=str,
)
TERM_DIVIDED_BY_MICRO_BATCHES = Kind(
    "term-divided-by-micro-batches", "The {term} is divided by the number of micro-batches.", term=str
)
TERM_STALE = Kind(
    "term-stale", "The {term} is that of an earlier backward: of older weights, or of its batch.", term=str
)
