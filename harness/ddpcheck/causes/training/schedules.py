"""Why the learning rates of a training run differ from those of its schedule."""

from ..cause import Kind

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
    look="calls of the schedule: one for each optimizer step, on each rank's own copy",
    world_size=int,
)
SCHEDULE_OF_WHOLE_DATA = Kind(
    "schedule-of-whole-data",
    "The schedule is {world_size} x too long: its length was counted before sharding.",
    look="the number of steps in an epoch: that of the rank's own loader",
    world_size=int,
)
SCHEDULE_PER_MICRO_BATCH = Kind(
    "schedule-per-micro-batch",
    "The schedule advances with every micro-batch, not with every step.",
    look="calls of the schedule: after optimizer.step() only",
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
RATES_WRONG_TOO = Kind("rates-wrong-too", "The reported learning rates are wrong as well.", certainty="possible")
