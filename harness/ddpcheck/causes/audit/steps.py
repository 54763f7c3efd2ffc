"""Decisions, hyperparameters, schedules and random draws of steps are wrong."""

from ..cause import Kind

LEARNING_RATE_DIFFERS = Kind(
    "learning-rate-differs",
    "The ranks use different learning rates from step {step} on: {values}.",
    look="where the learning rate is set: the values that decide it must be the same on every rank",
    certainty="certain",
    step=int,
    values=str,
)
SCHEDULE_STEPS_DIFFER = Kind(
    "schedule-steps-differ",
    "The schedule at {line} has taken different numbers of steps on the ranks: {counts}.",
    because="The learning rates differ from step {step} on: {values}.",
    look="the lines that step the schedule: every rank must reach them equally often",
    certainty="certain",
    counts=tuple[int, ...],
    step=int,
    values=str,
    line=str,
)
SCHEDULE_METRIC_DIFFERS = Kind(
    "schedule-metric-differs",
    "The ranks give ReduceLROnPlateau different metrics at {line}: {values}.",
    because="Each rank lowers its learning rate by a metric of its own. {how}",
    look="{line}: reduce the metric over the ranks first",
    values=str,
    how=str,
    step=int,
    line=str,
)
METRIC_REDUCED_TO_ONE_RANK = Kind(
    "metric-reduced-to-one-rank",
    "The learning rates of all ranks follow the result of reduce at {line}, which only one rank has.",
    because="They differ from step {step} on: {values}. On the other ranks the tensor holds no result.",
    look="{line}: all_reduce gives the result to every rank",
    step=int,
    values=str,
    line=str,
)
RATE_SCALED_WITHOUT_BATCH = Kind(
    "rate-scaled-without-batch",
    "The learning rate is multiplied by {factor:.4g} for {ranks} ranks, although the whole batch does not grow.",
    because="The loader made at {line} divides a batch of {batch} samples by the world size; one process has as large a batch.",
    look="the learning rate: scale it only if each rank keeps its batch size",
    factor=float,
    ranks=int,
    batch=int,
    line=str,
)
SCHEDULE_COUNTS_RANKS = Kind(
    "schedule-counts-ranks",
    "The learning rate's schedule ends after {step} of {steps} steps: it advances {ranks} times in each.",
    because="The scheduler takes a step for each rank, but the length of its schedule counts optimizer steps.",
    look="the length of the schedule made at {line}: it must be {ranks} times as large, or the scheduler takes one step for all",
    ranks=int,
    step=int,
    steps=int,
    line=str,
)
SCHEDULE_COUNTS_MICRO_BATCHES = Kind(
    "schedule-counts-micro-batches",
    "The learning rate's schedule ends after {step} of {steps} steps: it advances {count} times in each.",
    because="The scheduler takes a step for each micro-batch, but the length of its schedule counts optimizer steps.",
    look="the scheduler's step in the loop over micro-batches; the schedule is made at {line}",
    count=int,
    step=int,
    steps=int,
    line=str,
)
HYPERPARAMETERS_DIFFER = Kind(
    "hyperparameters-differ",
    "The ranks use different values of {name} from step {step} on: {values}.",
    look="where {name} is chosen; a random choice needs one seed for all ranks",
    certainty="certain",
    name=str,
    step=int,
    values=str,
)
SCHEDULE_FOR_ONE_PROCESS = Kind(
    "schedule-made-for-one-process",
    "The {schedule} made at {line} is for {length} steps; the run ends after {steps}.",
    because="{length} counts the batches of one process in {epochs:# epoch|# epochs}; each of {ranks} ranks gets a part of them.",
    look="{line}: count the batches of a rank's own loader",
    schedule=str,
    length=int,
    steps=int,
    epochs=int,
    ranks=int,
    line=str,
)
SCHEDULE_COUNTS_OWN_SAMPLES = Kind(
    "schedule-counts-own-samples",
    "The learning rate follows the number of samples that a rank has seen, not that of all ranks.",
    because="One process, with batches {ranks} times as large, has the rate of step {ranks} n in step n, from step {step} on.",
    look="the counter from which the learning rate is computed: add the samples, or tokens, of all ranks",
    ranks=int,
    step=int,
)
LEARNING_RATE_ENDS_EARLY = Kind(
    "learning-rate-ends-early",
    "The learning rate is 0 from step {step} on, and training takes {steps} steps.",
    because="The schedule ends after 1/{ranks} of the steps.",
    look="the length of the {schedule} made at {line}: it may have been divided by the world size twice",
    step=int,
    steps=int,
    ranks=int,
    schedule=str,
    line=str,
)
RANKS_STEP_APART = Kind(
    "ranks-step-apart",
    "The ranks take step {step} after different numbers of backward passes: {counts}.",
    because="Each rank decides by values of its own whether it takes a step.",
    look="{line}: the condition of the step, which must be the same on every rank",
    certainty="certain",
    step=int,
    counts=tuple[int, ...],
    line=str,
)
SKIPPED_STEP_DIFFERS = Kind(
    "skipped-step-differs",
    "{ranks:The gradient scaler of rank # skips|The gradient scalers of ranks # skip} step {step}; the others take it.",
    look="{line}: the scaler must see synchronised gradients, before unscale_",
    certainty="certain",
    ranks=tuple[int, ...],
    step=int,
    line=str,
)
SCALER_CHECKS_OWN_GRADIENTS = Kind(
    "scaler-checks-own-gradients",
    "The gradient scaler checks each rank's own gradients for infinities.",
    because="One rank may skip a step and halve its loss scale, while the others do not.",
    look="{line}: synchronise gradients before unscale_",
    certainty="certain",
    line=str,
)
SAME_DRAWS = Kind(
    "same-random-draws-on-every-rank",
    "Every rank draws the same random numbers at {line}.",
    because="{operation} gave the same result on all ranks in {count} of {of} draws, for different samples.",
    look="the seed: add the rank to it after the model is made",
    line=str,
    operation=str,
    count=int,
    of=int,
)
DRAWS_DIFFER = Kind(
    "random-draws-differ",
    "The ranks draw different random numbers at {line}.",
    because="{operation} gave different results in {count} of {of} draws; --random-streams equal asks for the same.",
    look="the seed before {line}: it must be the same on all ranks, and so must all draws since",
    line=str,
    operation=str,
    count=int,
    of=int,
)
