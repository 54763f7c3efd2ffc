"""Why samples count otherwise than by their weights."""

from .cause import Kind

WEIGHTS_IGNORED = Kind(
    "sample-weights-ignored",
    "The samples' weights are ignored: all samples count the same, masked ones too.",
    look="the loss: sum(weight * loss) / sum(weight)",
)
WEIGHTS_AS_MASK = Kind("sample-weights-as-mask", "Every weight that is not 0 counts as 1, as in a mask.")
WEIGHTS_OF_RANK_0 = Kind("sample-weights-of-rank-0", "The weights of rank 0 are used on every rank.")
DIVIDED_BY_SAMPLES = Kind(
    "divided-by-samples",
    "The loss is divided by the number of samples, not by the sum of their weights.",
    look="the divisor of the loss: the sum of the weights",
)
WEIGHTED_SUM_NOT_DIVIDED = Kind(
    "weighted-sum-not-divided",
    "Weighted losses are summed and not divided by the sum of the weights.",
    look="the divisor of the loss: the sum of the weights",
)
DIVIDED_BY_ALL_WEIGHTS = Kind(
    "divided-by-all-weights",
    "A rank's loss is divided by the weights of all ranks before the reduction.",
    because="The loss should be the rank's own weighted mean.",
)
WEIGHTLESS_RANK_IS_NAN = Kind(
    "weightless-rank-is-nan",
    "Rank {rank}, whose samples have no weight, adds NaN: 0 divided by 0.",
    look="the division by the sum of weights on a rank where it is 0",
    rank=int,
)
WEIGHTLESS_RANK_LOSES = Kind(
    "weightless-rank-loses",
    "A rank without weight in the last micro-batch loses its accumulated gradient.",
)
WEIGHTED_MEANS_EQUAL = Kind(
    "weighted-means-averaged-equally",
    "The ranks' weighted means are averaged equally; they should count by their weights.",
)
WEIGHTED_MEANS_BY_SIZE = Kind(
    "weighted-means-averaged-by-size",
    "Ranks count by batch sizes; they should {due}.",
    due=str,
)
WEIGHTED_MEANS_BY_NUMBER = Kind(
    "weighted-means-averaged-by-number",
    "Ranks count by their samples with any weight; they should count by sums of weights.",
)
ACCUMULATED_AVERAGED_EQUALLY = Kind(
    "accumulated-averaged-equally",
    "Earlier micro-batches are averaged equally; ranks should count by their weights.",
)
WEIGHT_SUM_STALE = Kind("weight-sum-stale", "The gradient is divided by the weights of an earlier batch.")
WEIGHT_SUM_TRUNCATED = Kind(
    "weight-sum-truncated", "The sum of weights is truncated to an integer before the division."
)
WEIGHT_SUM_AT_LEAST_1 = Kind(
    "weight-sum-at-least-1",
    "The sum of weights that divides is at least 1: weights with a smaller sum count too little.",
    look="max(sum, 1) or clamp(min=1), which are right for counts of tokens only; a sum of 0 needs a case of its own",
)
WEIGHT_SUM_PLUS = Kind(
    "weight-sum-plus",
    "{added:g} is added to the sum of weights that divides: small weights count too little.",
    look="a guard against division by zero; a sum of 0 needs a case of its own",
    added=float,
)
RANKS_BY_WEIGHT = Kind("ranks-counted-by-weight", "Ranks count by their sums of weights; they should count equally.")
SUMMED_OVER_SAMPLES = Kind(
    "summed-over-samples",
    "The loss is summed over samples and averaged over ranks, not divided by the weights.",
    look="the reduction of the loss over the batch",
)
SUMMED_OVER_SAMPLES_AND_RANKS = Kind(
    "summed-over-samples-and-ranks", "The loss is summed over samples and ranks, not divided by the weights."
)
