"""Why a training run reports another loss of an epoch than the mean over all samples."""

from ..cause import Kind

EPOCH_LOSS_SUMMED_OVER_WINDOW = Kind(
    "epoch-loss-summed-over-window", "Losses of micro-batches are summed, not averaged over the window."
)
EPOCH_LOSS_OF_LAST_MICRO_BATCH = Kind(
    "epoch-loss-of-last-micro-batch", "The loss of each window is that of its last micro-batch only."
)
EPOCH_LOSS_OF_LAST_STEP = Kind("epoch-loss-of-last-step", "The epoch loss is that of the last step only.")
EPOCH_LOSS_NOT_AGGREGATED = Kind(
    "epoch-loss-not-aggregated", "The epoch loss is the rank's own mean, not the mean over all ranks."
)
EPOCH_LOSS_OWN_LAST_STEP = Kind("epoch-loss-own-last-step", "The epoch loss is the rank's own loss in the last step.")
EPOCH_LOSS_OF_BATCHES = Kind(
    "epoch-loss-of-batches", "The epoch loss weighs all batches equally, whatever their sizes."
)
EPOCH_LOSS_DIVIDED_BY_SAMPLES = Kind(
    "epoch-loss-divided-by-samples",
    "The mean losses of batches are added, and divided by the number of samples.",
    look="the sum of losses: a batch's mean loss counts once for each of its samples",
)
EPOCH_LOSS_SUMMED_OVER_RANKS = Kind(
    "epoch-loss-summed-over-ranks",
    "The epoch loss is {world_size} x too large: losses are summed over ranks, perhaps in place by logging.",
    world_size=int,
)
EPOCH_LOSS_SHORT_AS_FULL = Kind(
    "epoch-loss-short-as-full", "A short batch counts as a full one: its loss is multiplied by batch_size."
)
EPOCH_LOSS_IN_FLOAT16 = Kind("epoch-loss-in-float16", "The loss has only float16 precision.")
EPOCH_LOSS_OF_ALL_EPOCHS = Kind(
    "epoch-loss-of-all-epochs", "The epoch loss is the mean of all epochs so far: its sums are not reset."
)
EPOCH_LOSS_WITHOUT_RANK = Kind(
    "epoch-loss-without-rank", "The epoch loss is the mean of the other ranks: rank {rank} is missing.", rank=int
)
EPOCH_LOSS_OVERWRITTEN = Kind(
    "epoch-loss-overwritten",
    "The sums of the loss are overwritten with rank 0's in every forward pass, as buffers are.",
)
EPOCH_LOSS_SUMS_REDUCED_AGAIN = Kind(
    "epoch-loss-sums-reduced-again",
    "The running sums of the loss are reduced in every step, earlier steps included again.",
)
EPOCH_LOSS_OF_EVALUATION = Kind(
    "epoch-loss-of-evaluation",
    "The epoch loss is computed with the parameters at the end of the epoch, not in its training batches.",
)
EPOCH_LOSS_WITHOUT_SHORT_WINDOW = Kind(
    "epoch-loss-without-short-window", "The short last window of an epoch is left out of the loss."
)
