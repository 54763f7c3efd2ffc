"""Why a score is not that of one process that holds the samples of all ranks."""

from .cause import Kind

PADDING_TIMES_NAN = Kind(
    "padding-times-nan",
    "Padding rows are multiplied by 0, and 0 times NaN is NaN: they have to be left out.",
)
SAMPLE_0_LEFT_OUT = Kind("sample-0-left-out", "Sample 0 is left out: its index is treated as padding.")
NAN_OF_EMPTY_RANK = Kind("nan-of-empty-rank", "A rank without samples contributes its own NaN, such as one of 0 / 0.")
NAN_OF_ONE_CLASS = Kind(
    "nan-of-one-class",
    "A rank with samples of one class only contributes NaN: only pairs within a rank are compared.",
)
NUMBER_WITHOUT_PAIRS = Kind(
    "number-without-pairs", "One class has no sample, so there is no pair, but a number is returned."
)
OUTPUTS_TAKEN_FOR_EQUAL = Kind(
    "outputs-taken-for-equal",
    "Outputs that differ slightly are treated as equal: they are rounded, or compared with few thresholds.",
)
SCORE_IMPRECISE = Kind(
    "score-imprecise", "The score is right except for rounding: a sum or count has less than float32 precision."
)
SQUARES_SUMMED_APART = Kind(
    "squares-summed-apart",
    "Squares or products of outputs and targets are summed separately, and cancel.",
    because="The difference must be taken before the square.",
)
EXP_OVERFLOWS = Kind(
    "exp-overflows",
    "exp() of the outputs overflows, or is 0: the largest output is not subtracted first.",
    look="log_softmax, or log(sum(exp(outputs - largest))) + largest",
)
LOSS_CUT_OFF = Kind("loss-cut-off", "Large losses, or large perplexities, are cut off.")
SCORE_ACCUMULATES_CALLS = Kind(
    "score-accumulates-calls",
    "The score covers this call's samples and earlier ones: sums are kept.",
    look="sums that are kept between calls: start each call from zero",
)
SCORE_OF_EARLIER_CALL = Kind("score-of-earlier-call", "The score of an earlier call is returned again.")
PADDING_COUNTED = Kind(
    "padding-counted",
    "Padding rows, whose index is -1, count as samples.",
    look="rows with the index -1: left out before the score",
)
PADDING_CUT_AT_END = Kind(
    "padding-cut-at-end", "One row per padding row is dropped at the end, wherever the padding is."
)
PADDING_COUNTED_BUT_ON_RANK = Kind(
    "padding-counted-but-on-rank",
    "Padding rows, whose index is -1, count as samples on all ranks except rank {rank}.",
    rank=int,
)
PADDING_COUNTED_ONCE = Kind("padding-counted-once", "All padding rows together count as one sample.")
DUPLICATES_COUNTED = Kind(
    "duplicates-counted",
    "A duplicate sample, such as sampler padding, counts twice.",
    look="the indices of samples: each counts once over all ranks",
)
DUPLICATES_CUT_AT_END = Kind(
    "duplicates-cut-at-end", "One row per duplicate is dropped at the end, although some duplicates are elsewhere."
)
DUPLICATES_BETWEEN_RANKS_COUNTED = Kind(
    "duplicates-between-ranks-counted",
    "A sample that several ranks hold counts on each: only duplicates within a rank are found.",
    look="where duplicates are dropped: after the ranks' samples are gathered",
)
THIRD_COPY_COUNTED = Kind("third-copy-counted", "Of three copies of a sample, one row is left out and two count.")
DUPLICATES_LEFT_OUT = Kind("duplicates-left-out", "A duplicate sample does not count at all.")
INDICES_CONFUSED = Kind(
    "indices-confused",
    "{dtype} cannot hold the indices: different samples are confused, or treated as padding.",
    look="the dtype of gathered indices",
    dtype=str,
)
LABELS_WRAP = Kind(
    "labels-wrap",
    "Labels above {largest} wrap around: they are sent as {dtype}.",
    look="the dtype of gathered labels",
    largest=int,
    dtype=str,
)
MEAN_OF_RANK_SCORES = Kind(
    "mean-of-rank-scores",
    "The result is the mean of the ranks' scores, not the score of all samples.",
    look="the reduction over ranks: it must combine counts, or outputs and targets, and no scores",
)
MEAN_OF_RANK_SCORES_WITH_ZEROS = Kind(
    "mean-of-rank-scores-with-zeros",
    "The result is the mean of the ranks' scores, with 0 for a rank without a score.",
    look="the reduction over ranks: it must combine counts, or outputs and targets, and no scores",
)
WEIGHTED_MEAN_OF_RANK_SCORES = Kind(
    "weighted-mean-of-rank-scores",
    "The result is the ranks' scores averaged by counts, but {score} is not a mean.",
    look="the reduction over ranks: it must combine counts, or outputs and targets, and no scores",
    score=str,
)
SUM_OF_RANK_SCORES = Kind(
    "sum-of-rank-scores",
    "The result is the sum of the ranks' scores.",
    look="the reduction over ranks: it must combine counts, or outputs and targets, and no scores",
)
SCORE_NOT_COMBINED = Kind(
    "score-not-combined",
    "The result is the rank's own score: nothing is combined.",
    look="whether the score reaches a collective",
)
SCORE_OF_ONE_RANK = Kind(
    "score-of-one-rank",
    "The result is the score of rank {rank} alone.",
    look="the collective: a reduction or a gather, not a broadcast",
    rank=int,
)
RANK_MISSING_FROM_SCORE = Kind("rank-missing-from-score", "The samples of rank {rank} are missing.", rank=int)
END_SAMPLE_LEFT_OUT = Kind("end-sample-left-out", "The {place} sample of every rank is left out.", place=str)
FEWEST_SAMPLES_COUNT = Kind(
    "fewest-samples-count",
    "Only {number} samples of each rank count: as many as the smallest rank has.",
    look="the gather of shares of different lengths: pad, and cut each by its own length",
    number=int,
)
SAMPLES_LIMITED = Kind("samples-limited", "Only {number} samples of each rank count.", number=int)
LABEL_LEFT_OUT = Kind(
    "label-left-out", "Samples of label {label} are left out: the label is treated as padding.", label=int
)
GATHERED_ROWS_CUT_WRONG = Kind(
    "gathered-rows-cut-wrong",
    "The gathered samples are cut at wrong places.",
    because="A rank's samples begin after the sum of the counts of the ranks before it.",
    look="the lengths by which gathered samples are cut: those of each rank",
)
COUNT_IN_HALF_PRECISION = Kind(
    "count-in-half-precision", "The number of samples needs more digits than half precision has."
)
SCORE_MEANS_UNWEIGHTED = Kind(
    "score-means-unweighted", "The ranks' means have equal weight before the score: counts are not used."
)
EMPTY_RANK_COUNTED_IN_SCORE = Kind("empty-rank-counted-in-score", "A rank without samples counts as one sample.")
SCORE_MEANS_WITH_ZEROS = Kind(
    "score-means-with-zeros", "The ranks' means have equal weight, and a rank without samples gives 0."
)
SCORE_NOT_DIVIDED = Kind(
    "score-not-divided",
    "The sum is not divided by the number of all samples.",
    look="the division by the number of all samples",
)
SCORE_DIVIDED_TWICE = Kind(
    "score-divided-twice",
    "The score is divided by the number of ranks again.",
    look="the division by the number of ranks",
)

CLASSES_WEIGH_EQUALLY = Kind(
    "classes-weigh-equally", "Every class has equal weight: it is the mean of the classes' accuracies."
)
SECOND_OUTPUT_THRESHOLDED = Kind(
    "second-output-thresholded",
    "The second output is compared with {threshold:g}; the first output is ignored.",
    threshold=float,
)
CLASS_NEVER_PREDICTED = Kind(
    "class-never-predicted", "The {place} class is never predicted: it is left out of the comparison.", place=str
)
UNLABELLED_CLASS_LEFT_OUT = Kind(
    "unlabelled-class-left-out", "A class that is predicted but is no sample's label is left out."
)
MICRO_AVERAGE = Kind("micro-average", "Samples have equal weight, not classes: it is the micro average.")
ABSENT_CLASS_COUNTS = Kind("absent-class-counts", "A class that occurs nowhere counts with {value}.", value=int)
CLASSES_WEIGHED_BY_SAMPLES = Kind("classes-weighed-by-samples", "Classes are weighted by their numbers of samples.")
BINARY_F1 = Kind("binary-f1", "Only the second of two classes counts: it is the binary F1, not the macro average.")
UNPREDICTED_CLASS_LEFT_OUT = Kind("unpredicted-class-left-out", "A class that is never predicted is left out.")
CLASS_MISSING_ON_RANK_LEFT_OUT = Kind(
    "class-missing-on-rank-left-out", "Classes that some rank does not have are left out."
)
F1_MEAN_OF_RANKS = Kind(
    "f1-mean-of-ranks",
    "The F1 of a class is the mean over ranks; counts have to be summed first.",
    look="the reduction over ranks: it must combine true positives, and counts of predictions and labels",
)
F1_MEAN_OF_RANKS_WITH_ZEROS = Kind(
    "f1-mean-of-ranks-with-zeros", "The F1 of a class is the mean over ranks, 0 where a rank lacks the class."
)
ONE_OUTPUT_COMPARED = Kind(
    "one-output-compared", "Only outputs of class {label} are compared, not the difference of both.", label=int
)
TIES_COUNT_NOTHING = Kind("ties-count-nothing", "Equal outputs count zero; they should count half.")
TIES_GO_BY_RANK = Kind(
    "ties-go-by-rank",
    "Equal outputs on different ranks do not count half: the order of the ranks decides.",
    because="Samples are sorted by output and rank, or ties are sought within each rank only.",
)
TIES_COUNT_FULLY = Kind("ties-count-fully", "Equal outputs count as correctly ordered; they should count half.")
CLASSES_EXCHANGED = Kind("classes-exchanged", "The two classes are exchanged.")
PROBABILITIES_BY_RANK = Kind(
    "probabilities-by-rank",
    "Some ranks convert margins to probabilities, and other ranks do not.",
    because="The rank's own batch decides whether its outputs are probabilities.",
)
PAIRS_WITHIN_RANKS = Kind(
    "pairs-within-ranks",
    "Samples of different ranks are not compared: only pairs within ranks count.",
    look="outputs and labels: gathered from all ranks before pairs are compared",
)
ROOT_NOT_TAKEN = Kind("root-not-taken", "The square root is missing: the score is the mean square.")
ABSOLUTE_DIFFERENCES = Kind("absolute-differences", "The score is the mean of absolute differences, not of squares.")
DIVIDED_BY_SAMPLES_ONLY = Kind(
    "divided-by-samples-only", "The sum is divided by the number of samples, but each sample has several outputs."
)
ROOT_OF_EACH_OUTPUT = Kind("root-of-each-output", "The square root is taken per output, before the mean.")
OUTPUTS_BROADCAST = Kind(
    "outputs-broadcast",
    "Each output is compared with all targets: a column minus a row broadcasts to a matrix.",
    look="the shapes of outputs and targets before they are subtracted",
)
EXP_NOT_TAKEN = Kind("exp-not-taken", "exp() is not taken: it is the mean cross entropy.")
EXP_OF_EACH_SAMPLE = Kind("exp-of-each-sample", "exp() is taken of each sample's cross entropy, before the mean.")
BITS_FOR_NATS = Kind(
    "bits-for-nats",
    "Natural logarithms are used as exponents of 2: bits and nats are mixed up.",
    look="the base of logarithm and power: one for both",
)

FILL_COUNTED = Kind(
    "fill-counted",
    "Zeros that fill up the blocks of smaller ranks count as samples.",
    look="the zeros that pad a gather: cut each rank's block by its length",
)
SAMPLE_0_FROM_FILL = Kind(
    "sample-0-from-fill",
    "Sample 0 is read from zeros that fill up a block: their index is 0 as well.",
)
FILLED_AND_CUT_AT_OTHER_END = Kind(
    "filled-and-cut-at-other-end",
    "Zeros replace the samples of rank {rank}: its block is padded at one end and cut at the other.",
    rank=int,
)
SCORE_ROUNDED = Kind("score-rounded", "The score is rounded to {decimals} decimals, as for display.", decimals=int)
SCORE_COMPLEMENT = Kind("score-complement", "The result is 1 minus the score: the share of errors.")
LABELS_SHIFTED = Kind("labels-shifted", "Labels are off by {by}: they may be counted from 1.", by=int)
TARGETS_SHIFTED = Kind(
    "targets-shifted", "Each output is compared with the target of the sample {place} it.", place=str
)
OUTPUTS_ROUNDED = Kind("outputs-rounded", "Outputs are rounded to {dtype} and lose digits.", dtype=str)
RANK_COUNTS_TWICE = Kind("rank-counts-twice", "The samples of rank {rank} count twice.", rank=int)

SCORE_CHANGES_ARGUMENT = Kind(
    "score-changes-argument",
    "Outputs, targets or indices are changed in place.",
    because="A caller that logs them afterwards logs changed values.",
    look="operators that work in place on outputs, targets or indices",
)
NAN_OF_SAMPLE_LOST = Kind(
    "nan-of-sample-lost",
    "The NaN, or the rank that has it, is left out or replaced: a diverged run looks healthy.",
)
