"""An exception in the middle of a backward, which the training program catches, and an engine in torch that does not notice."""

from __future__ import annotations

from typing import Any

from .wrappers import torch_fault

BROKE = "check_failed_backward_leaves_no_trace"
BROKE_LOCALLY = "check_failed_backward_inside_no_sync_leaves_no_trace"
TRAINS_ON = "check_backward_after_failed_backward_raises_or_is_correct"


@torch_fault("reduces-at-the-end-of-backward", broken_backward="recovers")
def at_the_end(module: Any) -> Any:
    """Correct: a callback at the end of backward, asked for anew after each forward."""
    from ...torch_broken import AtTheEnd

    return AtTheEnd(module)


@torch_fault(
    "callback-asked-for-once",
    BROKE,
    seen_in=("pytorch/pytorch#114194",),
    cause="broken-backward-left",
    broken_backward="recovers",
)
def asks_once(module: Any) -> Any:
    """That a callback was asked for is noted, and after a backward that broke still is: none ever comes."""
    from ...torch_broken import AsksOnce

    return AsksOnce(module)


@torch_fault(
    "count-of-gradients-left",
    TRAINS_ON,
    seen_in=("pytorch/pytorch#114194",),
    cause="broken-backward-left",
    broken_backward="raises",
)
def counts_down(module: Any) -> Any:
    """Gradients that are still to come are counted, from where a backward that broke has stopped."""
    from ...torch_broken import CountsDown

    return CountsDown(module)


@torch_fault(
    "count-of-gradients-left-in-no-sync", BROKE_LOCALLY, cause="broken-backward-left", broken_backward="raises"
)
def counts_always(module: Any) -> Any:
    """They are counted inside no_sync, too."""
    from ...torch_broken import CountsAlways

    return CountsAlways(module)


@torch_fault("gathered-and-not-sent", BROKE, cause="broken-backward-left", broken_backward="recovers")
def keeps_the_rest(module: Any) -> Any:
    """Gradients that were gathered for a message are sent with the next one."""
    from ...torch_broken import KeepsTheRest

    return KeepsTheRest(module)
