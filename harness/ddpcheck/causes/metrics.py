"""Why an aggregated metric is not the mean over all samples, or comes back under another name."""

from .cause import Kind

METRIC_MISSING = Kind("metric-missing", "The metric's name is missing from the result.")
CALLS_ACCUMULATED = Kind(
    "metric-accumulates-calls",
    "The mean covers this call and earlier calls: sums are kept between calls.",
    look="sums that are kept between calls: start each call from zero",
)
SUMS_REDUCED_AGAIN = Kind(
    "reduced-sums-kept",
    "Sums over all ranks are kept as the rank's own, and are reduced again in the next call.",
)
METRIC_OF_EARLIER_CALL = Kind("metric-of-earlier-call", "The mean of an earlier call is returned again.")
NONFINITE_OF_EMPTY_RANK = Kind(
    "nonfinite-of-empty-rank",
    "A rank without samples contributes its {value}: 0 times {value} is NaN.",
    look="the part of a rank without samples: a sum of 0 and a count of 0",
    value=str,
)
EMPTY_RANK_NOT_AGGREGATED = Kind(
    "empty-rank-not-aggregated",
    "Rank {rank} has no samples and returns its own NaN.",
    look="whether a rank without samples takes part in the reduction, as all ranks have to",
    rank=int,
)
RANK_0_DECIDES_EMPTY = Kind(
    "rank-0-decides-emptiness",
    "Rank 0 has no samples and makes the mean NaN for all ranks.",
    because="Only the sum of all counts says whether there are samples.",
)
COUNTS_AVERAGED_AS_INTEGERS = Kind(
    "counts-averaged-as-integers", "The ranks' counts are averaged as integers, which cuts off the fraction."
)
ZERO_MEAN_IGNORED = Kind("zero-mean-ignored", "A local mean of 0 is treated as missing: its samples are left out.")
COUNT_OVERFLOWS = Kind(
    "count-overflows", "A count needs more than 32 bits and overflows in the reduction.", look="the dtype of the count"
)
COUNT_WRAPS = Kind(
    "count-wraps",
    "A count of {count} overflows: it is kept in {bits} bits, or fewer.",
    because="The mean is divided by the rest of the count, or left out if the rest is 0.",
    look="the dtype of counts, and of their sum over ranks",
    count=int,
    bits=int,
)
MEAN_OF_RANK_MEANS = Kind(
    "mean-of-rank-means",
    "The result is the mean of the ranks' means: counts are not used.",
    look="the reduction: sums and counts, then one division",
)
EMPTY_RANK_GIVES_ZERO = Kind(
    "empty-rank-gives-zero",
    "The result is the mean of the ranks' means, with 0 for a rank without samples.",
    look="the reduction: sums and counts, then one division",
)
SUM_OF_RANK_MEANS = Kind(
    "sum-of-rank-means",
    "The result is the sum of the ranks' means.",
    look="the division of the sum by the number of all samples",
)
METRIC_NOT_DIVIDED = Kind(
    "metric-not-divided",
    "The result is the sum over all samples, not divided by the total count.",
    look="the division of the sum by the number of all samples",
)
METRIC_NOT_AGGREGATED = Kind(
    "metric-not-aggregated",
    "The result is the rank's own mean: nothing is aggregated.",
    look="whether the metric reaches a collective",
)
EMPTY_RANK_COUNTED = Kind("empty-rank-counted", "A rank without samples is counted as one sample with a mean of 0.")
DIVIDED_BY_EARLIER_COUNT = Kind("divided-by-earlier-count", "The sum is divided by the count of an earlier call.")
METRIC_TRUNCATED = Kind(
    "metric-truncated",
    "The fraction is cut off: a metric given as an int is aggregated as an int.",
    look="the dtype of the array that is reduced",
)
RANK_MISSING_FROM_METRIC = Kind(
    "rank-missing-from-metric",
    "The result is the mean of the other ranks: rank {rank} is missing.",
    look="the ranks that take part in the reduction",
    rank=int,
)
EQUAL_RANKS_COUNT_ONCE = Kind(
    "equal-ranks-count-once",
    "Ranks with equal metrics and counts are counted as one rank.",
    look="a set or a mapping of the ranks' numbers",
)
NEGATIVE_MEAN_CUT = Kind("negative-mean-cut", "A negative mean is cut off at 0.")
SINGLE_SAMPLE_LEFT_OUT = Kind("single-sample-left-out", "A rank with one sample is left out.")
METRIC_ROUNDED = Kind(
    "metric-rounded",
    "The mean is rounded to {decimals} decimals: small values, such as a learning rate, are lost.",
    decimals=int,
)
METRIC_IN_HALF_PRECISION = Kind(
    "metric-in-half-precision", "The mean has only half precision.", look="the dtype of the array that is reduced"
)
METRIC_IMPRECISE = Kind(
    "metric-imprecise",
    "The mean is right except for rounding: the mean or a count has less than float32 precision.",
)
VALUE_OF_EARLIER_CALL_ADDED = Kind(
    "value-of-earlier-call-added", "Part of an earlier call is in the mean.", certainty="possible"
)
ONE_RANK_WINS = Kind(
    "one-rank-wins",
    "The result is rank {rank}'s own mean: the parts of other ranks are lost or overwritten.",
    rank=int,
)
METRIC_CAPPED = Kind("metric-capped", "Values above {limit:g} are cut off.", limit=float)
METRIC_WEIGHTS_CHANGED = Kind(
    "metric-weights-changed",
    "The mean uses other weights than the counts: counts are lost or changed in the reduction.",
)
WEIGHTED_SUM_BY_RANKS = Kind(
    "weighted-sum-divided-by-ranks",
    "Means are multiplied by their counts, but the sum is divided by the number of ranks.",
)
UNWEIGHTED_SUM_BY_SAMPLES = Kind(
    "unweighted-sum-divided-by-samples",
    "Means are added up without their counts and divided by the count of all samples.",
)
MEAN_TIMES_WORLD_SIZE = Kind(
    "mean-times-world-size",
    "The mean is multiplied by the world size: it is exactly {world_size} x too large.",
    because="A factor is meant for a loss of another kind, or the count is averaged over the ranks and the sum is not.",
    look="factors of the world size, and the reduction of the count",
    world_size=int,
)
METRIC_DIVIDED_TWICE = Kind(
    "metric-divided-twice",
    "The mean is divided by the number of ranks again: exactly {world_size} x too small.",
    world_size=int,
)
DIVIDED_BY_LARGEST_COUNT = Kind(
    "divided-by-largest-count",
    "The sum is divided by the largest count of a rank, not by the total count.",
    look="the reduction of the count: a sum",
)
DIVIDED_BY_OWN_COUNT = Kind(
    "divided-by-own-count",
    "The sum is divided by the rank's own count, not by the total count.",
    look="the count that divides: reduced over ranks",
)
SUM_AND_COUNT_SWAPPED = Kind(
    "sum-and-count-swapped",
    "The sum and the count are swapped.",
    look="the order in which sum and count are packed and unpacked",
)
HALF_PRECISION_OVERFLOWS = Kind(
    "half-precision-overflows",
    "Sums or counts of up to {largest:g} are infinite in half precision, which ends at 65,504.",
    largest=float,
)

METRICS_BY_POSITION = Kind(
    "metrics-by-position",
    "Metrics are matched by their position in each rank's mapping, not by their names.",
    because="Each rank fills its mapping in a different order.",
    look="the order in which metrics are packed: sorted by name on every rank",
)
EARLIER_NAMES_RETURNED = Kind(
    "earlier-names-returned", "The result has names that were not passed, such as those of an earlier call."
)
NAMES_REWRITTEN = Kind(
    "names-rewritten",
    "The result changes names: to lower case, stripped, normalised or split.",
    because="Names may be split at commas or line breaks, or converted to another form of Unicode.",
)
NAME_PREFIX_CUT = Kind(
    "name-prefix-cut",
    "A prefix of the name, such as val_ or train_, is cut off.",
    because="The rest is the name of another metric.",
)
NAMES_OF_EARLIER_CALL = Kind("names-of-earlier-call", "The names are those of an earlier call with as many metrics.")
NAMES_UNPACKED_IN_OTHER_ORDER = Kind(
    "names-unpacked-in-other-order",
    "The values are under other names: they are packed in one order and unpacked in another.",
)
NAMES_MISSING = Kind(
    "names-missing",
    "Names are missing: the implementation expects others, such as those of an earlier call, or fewer.",
)
NAMED_METRIC_NOT_AGGREGATED = Kind(
    "named-metric-not-aggregated", "{names}: the rank's own mean, not aggregated.", names=tuple[str, ...]
)
RULE_BY_NAME = Kind(
    "rule-by-name",
    "{names}: the name selects a sum, an extreme or a root of squares, not the mean.",
    names=tuple[str, ...],
)
CAPPED_BY_NAME = Kind(
    "capped-by-name",
    "{names}: values beyond {limit:g} are cut off because of the metric's name.",
    names=tuple[str, ...],
    limit=float,
)
NAMES_CUT_SHORT = Kind("names-cut-short", "Names with the same beginning are treated as one: names are cut short.")
NAMES_CONFUSED = Kind("names-confused", "Different names are treated as one, as with a hash of few bits.")
EQUAL_METRICS_REDUCED_TOGETHER = Kind(
    "equal-metrics-reduced-together",
    "Metrics that are equal on a rank are treated as one, which is reduced once for each name.",
)
METRICS_MIXED_UP = Kind(
    "metrics-mixed-up",
    "Values of different metrics are mixed: ranks pack them in different orders, such as a set's.",
    look="the order in which metrics are packed: sorted by name on every rank",
)
METRICS_WRITTEN_INTO_ARGUMENT = Kind(
    "metrics-written-into-argument",
    "The global means are written into the caller's mapping.",
    because="A caller that logs its local means afterwards logs the global ones.",
    look="the mapping that is returned: a new one",
)
RESULT_MAPPING_REUSED = Kind(
    "result-mapping-reused",
    "The same mapping is returned by every call.",
    because="A caller that keeps a history then has only the last means.",
    look="the mapping that is returned: a new one",
)
NUMBER_WITHOUT_SAMPLES = Kind(
    "number-without-samples",
    "There are no samples, but a number is returned.",
    because="The sum may be divided by max(count, 1), or the rank's own value is returned.",
    look="the division by the count of all samples, which is 0 here",
)
OPPOSITE_INFINITIES = Kind(
    "opposite-infinities", "Infinities of both signs have no mean: one of them is left out or preferred."
)
NONFINITE_LEFT_OUT = Kind(
    "nonfinite-left-out", "The rank whose value is {value} is left out, or its value is replaced.", value=str
)
NAN_LEFT_OUT_BESIDE_OTHERS = Kind(
    "nan-left-out-beside-others", "A NaN is left out when there are other metrics in the call."
)
NAN_SPREADS = Kind("nan-spreads", "The NaN of {metric} spreads to metrics without NaN.", metric=str)
RANK_LEFT_OUT_FOR_NAN = Kind(
    "rank-left-out-for-nan", "All metrics of rank {rank} are left out, since one of them is NaN.", rank=int
)
RANKS_ADD_IN_OTHER_ORDER = Kind(
    "ranks-add-in-other-order",
    "The ranks add up in different orders, or some keep their own value.",
)
