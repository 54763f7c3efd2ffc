"""Why batch norm's statistics, losses or gradients are wrong where ranks measure together."""

from .cause import Kind

STATISTICS_OF_EACH_RANK = Kind(
    "statistics-of-each-rank",
    "Each rank keeps separate running statistics: no forward begins with those of rank 0.",
    because="Evaluation then differs by rank, and a checkpoint holds the statistics of one rank.",
    look="the broadcast of buffers before each training forward",
)
REPLACED_BUFFERS_NOT_SENT = Kind(
    "replaced-buffers-not-sent",
    "Buffers that the model replaced are not broadcast: the implementation holds those of construction.",
    because="The list of buffers is read once; a module that assigns a new buffer is not asked again.",
    look="where the list of buffers is made: it must be read anew before each broadcast",
)

OTHER_EPS = Kind(
    "batch-norm-eps",
    "Batch norm adds {eps:g} to the variance, not {right:g}.",
    look="layers that are made anew, as by a conversion, and their arguments",
    eps=float,
    right=float,
)
REMEASURE_COUNTS = Kind(
    "remeasure-counts-as-batch",
    "remeasure() counts as a batch: its forward runs in training mode and moves the counter.",
)
REMEASURE_CHANGES_MODE = Kind(
    "remeasure-changes-mode",
    "Backwards after remeasure() move statistics differently: momentum or mode is not restored.",
)
VARIANCE_PUT_TOGETHER = Kind(
    "variance-put-together-wrongly",
    "The variance of all samples is wrong although the mean is right.",
    because="The spread between the ranks' means may be left out.",
)
DIVIDED_BY_OTHER_COUNT = Kind(
    "statistics-divided-by-other-count",
    "Sums are divided by a count other than that of all ranks' samples.",
    because="For example by this rank's count times the world size.",
    certainty="possible",
)
OWN_BATCH = Kind(
    "normalised-by-own-batch",
    "Rank {rank} normalises by one rank's batch: not synchronised.",
    look="the statistics of the forward pass: sums and counts reduced over ranks",
    rank=int,
)
MEANS_WITHOUT_COUNTS = Kind(
    "means-averaged-without-counts",
    "The ranks' means are averaged without their counts; each sample should weigh equally.",
    look="the reduction of statistics: sums and counts, then one division",
)
BATCH_NORM_REDUCED_TWICE = Kind(
    "batch-norm-reduced-twice",
    "Batch norm's gradients are {world_size} x too large: summed in its backward, and reduced again.",
    because="Losses agree, so the statistics are right.",
    look="the backward of batch norm: it must not sum weight and bias gradients over ranks",
    world_size=int,
)
BACKWARD_NOT_OVER_ALL = Kind(
    "batch-norm-backward-not-over-all",
    "The backward of batch norm does not sum over all ranks' samples with equal weight.",
    because="Losses agree, so the statistics are right.",
)
SINGLE_SAMPLE_REFUSED = Kind(
    "single-sample-refused",
    "One sample per rank is refused: the size check counts the rank's samples, not those of all ranks.",
    look="the size check: it must use the number of all ranks' samples",
)
