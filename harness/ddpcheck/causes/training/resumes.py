"""Why a training run that resumes from a checkpoint ends elsewhere, or not at all."""

from ..cause import Kind

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
