"""Windows of micro-batches are weighed, stepped or synchronised in a wrong way."""

from ..cause import Kind

ACCUMULATION_NOT_DIVIDED = Kind(
    "accumulation-not-divided",
    "The losses of {count} micro-batches are added, not averaged.",
    because="The loss is not multiplied by 1/{count} before backward, and the gradients are not divided after it.",
    look="{line}: divide the loss by {count} before its backward pass",
    count=int,
    line=str,
)
LAST_WINDOW_FULL_COUNT = Kind(
    "last-window-divided-by-full-count",
    "The last window has {count:# micro-batch|# micro-batches} and is divided by {full}.",
    look="{line}: divide by the number of micro-batches that the window has",
    certainty="certain",
    count=int,
    full=int,
    line=str,
)
LAST_WINDOW_NOT_STEPPED = Kind(
    "last-window-not-stepped",
    "{count:# micro-batch|# micro-batches} at the end of an epoch {count:is|are} not stepped.",
    because="They are lost, or leak into the next epoch's first window.",
    look="the condition for optimizer.step() at the end of the epoch",
    certainty="certain",
    count=int,
)
COMMUNICATION_EVERY_MICRO_BATCH = Kind(
    "communication-every-micro-batch",
    "Every micro-batch communicates, though the script means to use no_sync.",
    because="All {count} backward passes of a window synchronise.",
    look="where no_sync is entered before {line}: it must be that of the wrapper",
    count=int,
    line=str,
)
NO_SYNC_AROUND_BACKWARD = Kind(
    "no-sync-around-backward-only",
    "no_sync is entered for the backward pass only.",
    because="The wrapper decides in its forward pass, which is outside: every micro-batch communicates.",
    look="{line}: put the forward pass inside no_sync, too",
    certainty="certain",
    line=str,
)
