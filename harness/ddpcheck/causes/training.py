"""Why a training run ends elsewhere than one process: windows of micro-batches, epochs, ranks, optimizer and schedule."""

from .cause import Kind

MICRO_BATCHES_WEIGH_EQUALLY = Kind(
    "micro-batches-weigh-equally",
    "Micro-batches of a window weigh equally, whatever their sizes.",
    because="A mean of means is not the mean over the window's samples.",
)
MICRO_BATCHES_SUMMED = Kind(
    "micro-batches-summed", "Gradients of micro-batches are summed, not averaged over the window."
)
SHORT_WINDOW_DIVIDED_AS_FULL = Kind(
    "short-window-divided-as-full", "The short last window of an epoch is divided by a full window's micro-batches."
)
SHORT_WINDOW_DROPPED = Kind(
    "short-window-dropped", "The short last window of an epoch is dropped: its samples have no effect."
)
SHORT_WINDOW_LEAKS = Kind(
    "short-window-leaks", "The short last window of an epoch leaks into the first window of the next epoch."
)
LAST_WINDOW_SPLIT = Kind(
    "last-window-split", "Every micro-batch of an epoch's last window is a separate optimizer step."
)
STEP_PER_MICRO_BATCH = Kind("step-per-micro-batch", "Every micro-batch is an optimizer step: nothing is accumulated.")
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

RATE_TIMES_WORLD_SIZE = Kind(
    "rate-times-world-size",
    "The learning rate is {world_size} x too large: multiplied by the world size.",
    because="With 2 ranks, a step that is taken twice looks the same.",
    world_size=int,
)
RATE_OVER_WORLD_SIZE = Kind(
    "rate-over-world-size",
    "The learning rate is {world_size} x too small: divided by the world size.",
    world_size=int,
)
RATE_ROUNDED = Kind(
    "rate-rounded",
    "The learning rate is rounded to {dtype}: reported rates are the schedule's in that dtype.",
    because="The model is trained in {given}, and a step multiplies by the rate.",
    dtype=str,
    given=str,
)
RATE_WARMS_UP = Kind("rate-warms-up", "The first step takes half its learning rate, as in a warm-up.")
SCHEDULE_IGNORED = Kind("schedule-ignored", "The learning rate stays constant: the schedule has no effect.")
SCHEDULE_PER_EPOCH = Kind("schedule-per-epoch", "The schedule advances with every epoch, not with every step.")
SCHEDULE_AHEAD = Kind("schedule-ahead", "The schedule is one step ahead: it advances before the step, not after it.")
SCHEDULE_BEHIND = Kind("schedule-behind", "The schedule is one step behind: each step uses the previous learning rate.")
SCHEDULE_WITHOUT_SHORT_BATCHES = Kind(
    "schedule-without-short-batches", "The schedule's length leaves out each epoch's short last batch or window."
)
SCHEDULE_BELOW_ZERO = Kind(
    "schedule-below-zero",
    "The schedule's length leaves out each epoch's short last batch or window; rates fall below 0.",
)
SCHEDULE_SKIPS_SHORT_BATCHES = Kind(
    "schedule-skips-short-batches", "The schedule does not advance in each epoch's short last batch or window."
)
SCHEDULE_ENDS_EARLY = Kind("schedule-ends-early", "The schedule reaches 0 with the last step, one step too early.")
SCHEDULE_OF_SHORTER_RUN = Kind(
    "schedule-of-shorter-run",
    "A finished run is continued for more epochs, but the schedule keeps the first run's length or rate.",
    look="what the checkpoint restores: the number of steps done, but not the number of all steps, and no rate",
)
SCHEDULE_PER_PARAMETER = Kind(
    "schedule-per-parameter",
    "The schedule advances {parameters} steps with each optimizer step: once for each parameter.",
    parameters=int,
)
SCHEDULE_PER_RANK = Kind(
    "schedule-per-rank",
    "The schedule advances {world_size} steps with each optimizer step: once for each rank.",
    world_size=int,
)
SCHEDULE_OF_WHOLE_DATA = Kind(
    "schedule-of-whole-data",
    "The schedule is {world_size} x too long: its length was counted before sharding.",
    world_size=int,
)
SCHEDULE_PER_MICRO_BATCH = Kind(
    "schedule-per-micro-batch", "The schedule advances with every micro-batch, not with every step."
)
SCHEDULE_LENGTH_IN_MICRO_BATCHES = Kind(
    "schedule-length-in-micro-batches", "The schedule's length is counted in micro-batches, not in steps."
)
RATE_BY_OWN_SAMPLES = Kind(
    "rate-by-own-samples", "Each rank's learning rate depends on the samples that the rank used: ranks differ."
)
SCHEDULE_BY_SAMPLES = Kind(
    "schedule-by-samples",
    "The schedule follows the share of samples used so far, not that of steps: short batches change the rate.",
)
RATE_IN_MOMENTUM = Kind(
    "rate-in-momentum", "The learning rate is part of the momentum: earlier steps keep their old rate."
)
RATE_OF_STEP_BEFORE = Kind("rate-of-step-before", "The learning rate is that of the step before.")
RATE_OF_NEXT_STEP = Kind("rate-of-next-step", "The learning rate is that of the next step.")
RATE_READ_LATE = Kind(
    "rate-read-late", "Each reported rate is that of the next step: the schedule advances before it is read."
)

RATES_BY_EPOCH = Kind("rates-by-epoch", "One learning rate is reported for each epoch, not one for each step.")

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
OPTIMIZER_PER_EPOCH = Kind("optimizer-per-epoch", "Each epoch begins with a new optimizer: momentum starts again.")
GRADIENTS_KEPT_BETWEEN_EPOCHS = Kind(
    "gradients-kept-between-epochs", "The last gradients of an epoch are added to the next epoch's first step."
)
BUFFER_REFILLED = Kind(
    "buffer-refilled",
    "The inputs belong to a batch {later} batches later: a buffer was refilled before use.",
    later=int,
)
BATCH_SIZE_OF_ALL_RANKS = Kind(
    "batch-size-of-all-ranks", "The batch size is divided between the ranks: batches are smaller and steps more."
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
    "run-clipped-by-own-norm", "Gradients are clipped by each rank's own norm, before the reduction."
)
CLIPPED_PER_MICRO_BATCH = Kind(
    "clipped-per-micro-batch", "Gradients are clipped after every micro-batch, before they are complete and reduced."
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
BEST_INSTEAD_OF_LAST = Kind(
    "best-instead-of-last", "The best weights are loaded into the model at the end.", certainty="possible"
)
PARAMETERS_WRONG_TOO = Kind(
    "parameters-wrong-too", "The parameters at the end are wrong as well.", certainty="possible"
)
RATES_WRONG_TOO = Kind("rates-wrong-too", "The reported learning rates are wrong as well.", certainty="possible")
REPORTED_INDICES_WRONG = Kind(
    "reported-indices-wrong",
    "No rank reports sample {sample} in epoch {epoch}: reported indices may not be those used.",
    epoch=int,
    sample=int,
)

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

ARGUMENTS_CHANGED_BY_RUN = Kind(
    "arguments-changed-by-run",
    "The run changes its arguments, so the next run starts from different ones.",
    because="Parameters share memory with the initial values, or data are scaled in place.",
)
SHARDS_OVERLAP_OR_TAIL_LOST = Kind(
    "shards-overlap-or-tail-lost", "The shards of the ranks overlap, or the tail is lost."
)
RUN_NOT_SHARDED = Kind("run-not-sharded", "The samples are not sharded between the ranks.")
EPOCHS_COUNTED_ROUND = Kind(
    "epochs-counted-round",
    "Some epoch numbers do not reach the sampler, or epoch numbers wrap around.",
    certainty="possible",
)

NO_RULE_OF_STOPPING = Kind(
    "stops-by-other-loss", "The run stops by another loss than the one that it reports, or never stops."
)
STOPS_BY_OWN_LOSS = Kind(
    "stops-by-own-loss",
    "Each rank decides by its own loss whether to stop: others wait for a rank that has stopped.",
)
EQUAL_LOSS_COUNTS_AS_LOWER = Kind(
    "equal-loss-counts-as-lower", "A loss equal to the lowest counts as lower: the patience starts again."
)
PATIENCE_ONE_MORE = Kind(
    "patience-one-more", "Patience is one epoch too long: it counts from the lowest loss, or compares with >."
)
PATIENCE_ONE_LESS = Kind(
    "patience-one-less", "Patience is one epoch too short: the epoch of the lowest loss itself counts."
)
COMPARED_WITH_EPOCH_BEFORE = Kind(
    "compared-with-epoch-before", "The loss is compared with the epoch before, not with the lowest."
)
PATIENCE_NOT_CONSECUTIVE = Kind(
    "patience-not-consecutive", "All epochs without improvement count, not only consecutive ones."
)
NAN_DOES_NOT_COUNT = Kind(
    "nan-does-not-count",
    "An epoch with a loss of NaN does not count as one without improvement, so a diverged run goes on.",
    look="comparisons with NaN, which are false: loss >= lowest, and not (loss < lowest), differ",
)
SMALL_IMPROVEMENT_IGNORED = Kind("small-improvement-ignored", "A slightly lower loss does not count as an improvement.")

BEST_KEPT_BEFORE_LAST_STEP = Kind(
    "best-kept-before-last-step",
    "The best weights are kept before the last step of epoch {epoch}, not at its end.",
    epoch=int,
)
BEST_FORGOTTEN_ON_RESUME = Kind("best-forgotten-on-resume", "The best weights from before the resume are forgotten.")
LATER_OF_EQUAL_BEST = Kind(
    "later-of-equal-best",
    "Several epochs have the lowest loss: the first of them, epoch {epoch}, is the best.",
    epoch=int,
)
CHECKPOINT_BEFORE_BEST = Kind(
    "checkpoint-before-best",
    "The checkpoint was saved before its last epoch, {epoch}, was compared with the best so far.",
    epoch=int,
)
LOWEST_STARTS_FINITE = Kind(
    "lowest-starts-finite", "No loss counts as the lowest: the initial value is a finite number, not infinity."
)
BEST_IS_LAST_OF_EARLY_STOP = Kind(
    "best-is-last-of-early-stop", "The weights of the last epoch, at which the run stops, are returned as the best."
)
BEST_BY_OWN_LOSS = Kind("best-by-own-loss", "The best epoch is chosen by rank {rank}'s own loss.", rank=int)
BEST_NOT_COPIED = Kind(
    "best-not-copied",
    "The last epoch's weights are returned, but epoch {epoch} is best: kept without a copy, or not kept.",
    epoch=int,
)
SMALL_GAIN_IGNORED = Kind(
    "small-gain-ignored", "Epoch {epoch} has a loss lower by {gain:.1g}, but is not kept.", epoch=int, gain=float
)
BEST_OF_EPOCH = Kind("best-of-epoch", "All ranks hold the parameters of epoch {epoch}.", epoch=int)
BEST_BY_EACH_RANK = Kind(
    "best-by-each-rank",
    "Each rank chooses the best epoch by its own loss: the ranks keep epochs {epochs}.",
    epochs=tuple[int, ...],
)
BEST_DIFFERS_BETWEEN_RANKS = Kind(
    "best-differs-between-ranks", "The ranks keep different epochs: {epochs}.", epochs=tuple[int, ...]
)
NAN_COUNTS_AS_LOWEST = Kind("nan-counts-as-lowest", "A NaN loss counts as the lowest: no comparison with it is true.")

SCHEDULE_OF_CUT_RUN = Kind(
    "schedule-of-cut-run", "The interrupted run's schedule covered only that run, not all epochs."
)
SCHEDULE_OVER_REST = Kind(
    "schedule-over-rest", "After resuming, the schedule starts again, over the steps that are left."
)
SCHEDULE_BEHIND_AFTER_RESUME = Kind(
    "schedule-behind-after-resume",
    "The schedule is one step behind, and resuming starts it with the initial rate.",
)
SCHEDULE_OF_LAST_RUN_ONLY = Kind(
    "schedule-of-last-run-only", "The schedule advances by the steps of the last run only, not of all runs."
)
SCHEDULE_RESTARTS = Kind("schedule-restarts", "After resuming, the schedule starts again on {ranks}.", ranks=str)
LAST_STEP_NOT_SAVED = Kind(
    "last-step-not-saved",
    "After resuming, the last step before the interruption is missing on {ranks}: the save came too early.",
    ranks=str,
)
LAST_EPOCH_NOT_SAVED = Kind(
    "last-epoch-not-saved",
    "After resuming, the last epoch before the interruption is missing on {ranks}: the save came too early.",
    ranks=str,
)
RESUME_LOSES_OPTIMIZER = Kind(
    "resume-loses-optimizer",
    "After resuming, the optimizer's state is lost on {ranks}: momentum starts again.",
    ranks=str,
)
RESUME_LOSES_OPTIMIZER_AND_SCHEDULE = Kind(
    "resume-loses-optimizer-and-schedule",
    "After resuming, the optimizer's state and the schedule are lost on {ranks}.",
    ranks=str,
)
RESUME_LOADS_EPOCH_ONLY = Kind(
    "resume-loads-epoch-only", "Resuming loads nothing but the epoch number on {ranks}.", ranks=str
)
RESUME_LOSES_PARAMETERS = Kind(
    "resume-loses-parameters", "Resuming does not load the parameters on {ranks}.", ranks=str
)
RESUME_LOADS_SCHEDULE_ONLY = Kind(
    "resume-loads-schedule-only", "Resuming loads nothing but the schedule on {ranks}.", ranks=str
)
RESUME_LOSES_CLIPPING = Kind(
    "resume-loses-clipping", "After resuming, gradients are no longer clipped on {ranks}.", ranks=str
)
CHECKPOINT_NOT_THERE_YET = Kind(
    "checkpoint-not-there-yet", "The checkpoint folder or file does not exist until the trainer has made it."
)
RANKS_DECIDE_RESUME = Kind(
    "ranks-decide-resume",
    "Rank 0 finds the checkpoint, the others do not: each rank decides by itself whether to resume.",
)
NOBODY_WAITS_FOR_RANK_0 = Kind(
    "nobody-waits-for-rank-0", "A rank uses the checkpoint folder or a file in it before rank 0 has made it."
)
EPOCH_NOT_RESTORED = Kind("epoch-not-restored", "The epoch number is not restored.")
EPOCHS_TRAINED_AGAIN = Kind(
    "epochs-trained-again", "Finished epochs are trained again: their end was not saved or not recognised."
)
EPOCHS_SKIPPED = Kind("epochs-skipped", "Epochs are skipped: they count as done, or a finished run cannot continue.")
EPOCHS_FROM_ZERO = Kind(
    "epochs-from-zero",
    "After resuming, the order of epoch {epoch} comes again.",
    because="Epochs count from 0 again, or the state of the random generator is not restored.",
    look="the epoch's number and random states in the checkpoint, and seeds that are set after they are loaded",
    epoch=int,
)
RANDOM_STATE_OF_RANK_0 = Kind(
    "random-state-of-rank-0",
    "{ranks:Rank # resumes|Ranks # resume} in another order, rank 0 does not: rank 0's random state may be loaded everywhere.",
    look="the random state of each rank in the checkpoint",
    ranks=tuple[int, ...],
)
POSITION_KEPT_ON_RESUME = Kind(
    "position-kept-on-resume",
    "The first samples are missing: the position from before the resume is used in this epoch.",
)
ORDER_NOT_BY_SEED_AND_EPOCH = Kind(
    "order-not-by-seed-and-epoch",
    "The order depends on more than seed and epoch, such as a random state that is not restored.",
)
EVERY_RANK_SAVES = Kind(
    "every-rank-saves",
    "All ranks save to one file: only rank 0 should save, or each rank to a separate file.",
)
