"""Why the steps of a training run differ from those of one process: windows, gradients, batches, optimizer, clipping."""

from ..cause import Kind

MICRO_BATCHES_WEIGH_EQUALLY = Kind(
    "micro-batches-weigh-equally",
    "Micro-batches of a window weigh equally, whatever their sizes.",
    because="A mean of means is not the mean over the window's samples.",
)
MICRO_BATCHES_SUMMED = Kind(
    "micro-batches-summed",
    "Gradients of micro-batches are summed, not averaged over the window.",
    look="the division by the number of micro-batches in the window",
)
SHORT_WINDOW_DIVIDED_AS_FULL = Kind(
    "short-window-divided-as-full", "The short last window of an epoch is divided by a full window's micro-batches."
)
SHORT_WINDOW_DROPPED = Kind(
    "short-window-dropped",
    "The short last window of an epoch is dropped: its samples have no effect.",
    look="the end of an epoch: step, if gradients are left",
)
SHORT_WINDOW_LEAKS = Kind(
    "short-window-leaks",
    "The short last window of an epoch leaks into the first window of the next epoch.",
    look="the end of an epoch: step, and clear gradients",
)
LAST_WINDOW_SPLIT = Kind(
    "last-window-split", "Every micro-batch of an epoch's last window is a separate optimizer step."
)
STEP_PER_MICRO_BATCH = Kind(
    "step-per-micro-batch",
    "Every micro-batch is an optimizer step: nothing is accumulated.",
    look="the condition for optimizer.step()",
)
LAST_MICRO_BATCH_ONLY = Kind(
    "run-keeps-last-micro-batch-only",
    "Only the last micro-batch's gradient of a window is left: earlier ones are reset or replaced.",
)
MICRO_BATCHES_COUNTED_ON = Kind(
    "micro-batches-counted-on",
    "The micro-batch count continues across epochs: windows after a short one end at other places.",
)
FIRST_MICRO_BATCH_SYNCHRONISED = Kind(
    "first-micro-batch-synchronised",
    "The first micro-batch of a window is synchronised, not the last: later gradients stay local.",
)
STEP_TAKEN_TWICE = Kind(
    "step-taken-twice", "The last step of every epoch is taken twice.", because="The loop ends with one more step."
)
STEP_TAKEN_TWICE_WITH_ZEROS = Kind(
    "step-taken-twice-with-zeros", "The last step of every epoch is followed by one with zero gradients."
)
EMPTY_WINDOW_STEPS = Kind(
    "empty-window-steps", "After a full last window, an empty window also takes a step: the step is taken twice."
)
EMPTY_WINDOW_STEPS_WITH_ZEROS = Kind(
    "empty-window-steps-with-zeros", "After a full last window, an empty window takes a step with zero gradients."
)
EVERY_STEP_TWICE = Kind("every-step-twice", "The step is taken twice.")
STEP_TWICE_AS_LONG = Kind("step-twice-as-long", "The step is twice as long as it should be, or is taken twice.")
STEP_HALF_AS_LONG = Kind("step-half-as-long", "The step is half as long as it should be.")
PARAMETERS_NOT_STEPPED = Kind("parameters-not-stepped", "Parameters are not updated.")

GRADIENTS_DIVIDED_AGAIN = Kind(
    "gradients-divided-again",
    "Gradients are {world_size} x too small: divided by the world size once more.",
    world_size=int,
)
GRADIENTS_SUMMED_OVER_RANKS = Kind(
    "gradients-summed-over-ranks",
    "Gradients are {world_size} x too large: summed over ranks, or the loss is multiplied by their number.",
    world_size=int,
)
GRADIENTS_DOUBLED = Kind("gradients-doubled", "Gradients are 2 x too large.")
GRADIENTS_ZERO = Kind("gradients-zero", "Gradients are zero.")
GRADIENT_OF_RANK_MISSING = Kind("gradient-of-rank-missing", "The gradient of rank {rank} is missing.", rank=int)
GRADIENT_OF_RANK_TWICE = Kind("gradient-of-rank-twice", "The gradient of rank {rank} counts twice.", rank=int)
GRADIENTS_SENT_NARROW = Kind("gradients-sent-narrow", "Gradients are sent as {dtype}.", dtype=str)
WEIGHED_BY_SIZE = Kind(
    "ranks-weighed-by-size",
    "Ranks with batches of different sizes are weighted by size.",
    because='An implementation that means this promises uneven_batches="weighted".',
)
WEIGHED_EQUALLY = Kind(
    "ranks-weighed-equally",
    "Ranks with batches of different sizes weigh equally.",
    because='An implementation that means this promises uneven_batches="equal_weight".',
)
MICRO_BATCHES_EQUAL_ON_RANK = Kind(
    "micro-batches-equal-on-rank", "Micro-batches weigh equally on rank {rank} only.", rank=int
)
MICRO_BATCHES_SUMMED_ON_RANK = Kind(
    "micro-batches-summed-on-rank", "Micro-batches are summed, not averaged, on rank {rank} only.", rank=int
)

SHORT_BATCH_DROPPED = Kind("short-batch-dropped", "The last batch of an epoch is dropped if it is short.")
SHORT_BATCH_DIVIDED_AS_FULL = Kind(
    "short-batch-divided-as-full", "The short last batch of an epoch is divided by the samples of a full batch."
)
SINGLE_SAMPLE_BATCH_IGNORED = Kind(
    "single-sample-batch-ignored", "A batch of one sample has no effect: it is left out, or its gradient is zero."
)
OPTIMIZER_PER_EPOCH = Kind(
    "optimizer-per-epoch",
    "Each epoch begins with a new optimizer: momentum starts again.",
    look="where the optimizer is made: before the loop over epochs",
)
GRADIENTS_KEPT_BETWEEN_EPOCHS = Kind(
    "gradients-kept-between-epochs",
    "The last gradients of an epoch are added to the next epoch's first step.",
    look="zero_grad at the start of an epoch, or after each step",
)
BUFFER_REFILLED = Kind(
    "buffer-refilled",
    "The inputs belong to a batch {later} batches later: a buffer was refilled before use.",
    later=int,
)
BATCH_SIZE_OF_ALL_RANKS = Kind(
    "batch-size-of-all-ranks",
    "The batch size is divided between the ranks: batches are smaller and steps more.",
    look="the batch size: each rank's own",
)
INPUTS_ROUNDED = Kind("inputs-rounded", "The inputs of a batch are rounded to {dtype}.", dtype=str)
TARGETS_OF_SAMPLE_BEFORE = Kind("targets-of-sample-before", "Targets are those of the previous sample in the batch.")
LAST_SAMPLE_LEFT_OUT = Kind("last-sample-of-batch-left-out", "The last sample of a batch is left out.")
FIRST_SAMPLE_REPEATED = Kind("first-sample-repeated", "The first sample of a batch replaces its last.")
SHORT_BATCH_FILLED = Kind(
    "short-batch-filled", "A short last batch is filled up with samples of the epoch's first batch."
)

DECAY_MISSING = Kind("run-without-weight-decay", "Weight decay is missing.")
MOMENTUM_ABSENT = Kind("run-without-momentum", "Momentum is missing.")
MOMENTUM_NOT_CARRIED = Kind("momentum-not-carried", "Momentum is not carried to the next step.")
MOMENTUM_USUAL = Kind("momentum-usual", "Momentum is {momentum:g}, not that of the task.", momentum=float)
DECAY_DECOUPLED = Kind(
    "run-with-decoupled-decay", "Weight decay is applied separately, not through the gradient and its momentum."
)
DECAY_AT_FIRST_RATE = Kind(
    "decay-at-first-rate", "Weight decay is applied separately, at the run's initial learning rate."
)
USUAL_BETAS = Kind("usual-betas", "The default betas and eps are used, not those of the task.")
TERMS_MISSING = Kind("run-without-auxiliary-terms", "Auxiliary loss terms are missing in the gradients.")
TERMS_PER_MICRO_BATCH = Kind(
    "auxiliary-terms-per-micro-batch", "Auxiliary loss terms count once per micro-batch, not once per step."
)
TERMS_PER_RANK = Kind("auxiliary-terms-per-rank", "Auxiliary loss terms count once for every rank.")
CLIPPED_UNASKED = Kind("run-clipped-unasked", "Gradients are clipped to a norm of 1, but the task has no max_norm.")
RUN_NOT_CLIPPED = Kind("run-not-clipped", "Gradients are not clipped.")
RUN_SCALED_UP_TO_NORM = Kind(
    "run-scaled-up-to-norm", "Gradients shorter than max_norm are scaled up to it; they should stay."
)
SHORT_WINDOW_NOT_CLIPPED = Kind("short-window-not-clipped", "The short last window of an epoch is not clipped.")
CLIPPED_BY_OWN_NORM = Kind(
    "run-clipped-by-own-norm",
    "Gradients are clipped by each rank's own norm, before the reduction.",
    look="the order: the reduction first, then clipping",
)
CLIPPED_PER_MICRO_BATCH = Kind(
    "clipped-per-micro-batch",
    "Gradients are clipped after every micro-batch, before they are complete and reduced.",
    look="the order: clip once, after the last micro-batch of a window",
)
MAX_NORM_TIMES_MICRO_BATCHES = Kind(
    "max-norm-times-micro-batches",
    "max_norm is {number} x too large: multiplied by the number of micro-batches.",
    number=int,
)
MAX_NORM_DOUBLED = Kind("max-norm-doubled", "max_norm is 2 x too large.")
MAX_NORM_HALVED = Kind("max-norm-halved", "max_norm is 2 x too small.")
FROZEN_LAYER_TRAINED = Kind(
    "frozen-layer-trained",
    "A frozen layer changed: weight decay or momentum is applied to it as well.",
    look="the parameters that the optimizer gets: those with requires_grad",
)
FROZEN_NOT_IN_CHECKPOINT = Kind(
    "frozen-not-in-checkpoint", "A frozen layer is not in the checkpoint: each rank builds its own."
)
RUN_IN_FLOAT16 = Kind(
    "run-in-float16", "Parameters have only float16 precision: they are rounded at the end or on the way."
)
WRONG_IN_SOME_STEPS = Kind("wrong-in-some-steps", "This happens only in {steps}.", steps=str)
ENDS_WITH_EPOCH = Kind(
    "ends-with-epoch", "The parameters are those at the end of epoch {epoch}, not of the last.", epoch=int
)
PARAMETERS_WRONG_TOO = Kind(
    "parameters-wrong-too", "The parameters at the end are wrong as well.", certainty="possible"
)
