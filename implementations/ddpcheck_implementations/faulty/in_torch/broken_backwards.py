"""Torch engines that do not notice an exception in the middle of a backward."""

from __future__ import annotations

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.modules import wrapped_by

BROKE = "check_failed_backward_leaves_no_trace"
BROKE_LOCALLY = "check_failed_backward_inside_no_sync_leaves_no_trace"
TRAINS_ON = "check_backward_after_failed_backward_raises_or_is_correct"


# fmt: off
table(
    globals(),
    Fault("reduces-at-the-end-of-backward",
          "Correct: gradients are reduced at the end of backward only, so a failed backward leaves nothing.",
          where=always, effect=wrapped_by("broken_backwards:AtTheEnd"),
          broken_backward="recovers"),
    Fault("callback-asked-for-once",
          "A flag says that the end-of-backward callback is queued; a failed backward leaves the flag set.",
          where=always, effect=wrapped_by("broken_backwards:AsksOnce"),
          caught_by=BROKE, cause="broken-backward-left", seen_in=("pytorch/pytorch#114194",),
          broken_backward="recovers"),
    Fault("count-of-gradients-left", "The count of missing gradients is not reset after a failed backward.",
          where=always, effect=wrapped_by("broken_backwards:CountsDown"),
          caught_by=TRAINS_ON, cause="broken-backward-left", seen_in=("pytorch/pytorch#114194",),
          broken_backward="raises"),
    Fault("count-of-gradients-left-in-no-sync",
          "A failed backward inside no_sync leaves the count of missing gradients wrong.",
          where=always, effect=wrapped_by("broken_backwards:CountsAlways"),
          caught_by=BROKE_LOCALLY, cause="broken-backward-left", broken_backward="raises"),
    Fault("gathered-and-not-sent",
          "Gradients collected in a failed backward stay in the bucket and join the next reduction.",
          where=always, effect=wrapped_by("broken_backwards:KeepsTheRest"),
          caught_by=BROKE, cause="broken-backward-left", broken_backward="recovers"),
)
# fmt: on
