"""Training runs that went wrong as one issue of a library's tracker tells, in miniature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

from ..data_parallel.trainer import Trainer, Window
from .trainers import trainer

ACCUMULATED = "check_run_with_accumulation_ends_where_one_process_ends"
SCHEDULED = "check_run_with_a_schedule_ends_where_one_process_ends"


class Rescheduled(Trainer):
    """The linear schedule is at the step that at() says."""

    def at(self) -> int:
        return self.progress.step

    def learning_rate(self) -> float:
        left = max(0, self.steps - self.at())
        rate = self.task.optimizer.lr
        return rate * left / self.steps if self.task.schedule == "linear" else rate


@trainer("schedule-by-micro-batches-seen", "tracel-ai/burn#5695", SCHEDULED, words="also of short windows")
class ByMicroBatches(Rescheduled):
    """The scheduler is stepped with every micro-batch: before the update, for all of the window but its last one."""

    seen = 0

    def gather(self, window: Window) -> list[float]:
        self.seen += len(window)
        return super().gather(window)

    def at(self) -> int:
        return self.seen - 1


@trainer("schedule-by-parameters", "pytorch/pytorch#74737", SCHEDULED, words="once for each parameter")
class ByParameters(Rescheduled):
    """The counter of steps is in the loop over the parameters."""

    def at(self) -> int:
        return self.progress.step * len(self.replica.parameters())


@trainer("reset-within-the-window", "meituan-longcat/LongCat-Image#46", ACCUMULATED, words="those before it were reset")
class ResetWithin(Trainer):
    """zero_grad comes before the micro-batch that is synchronised, and not after the step."""

    def gather(self, window: Window) -> list[float]:
        losses = []
        for number, rows in enumerate(window, start=1):
            if number == len(window):
                self.replica.zero_grad()
            with nullcontext() if number == len(window) else self.replica.no_sync():
                losses.append(self.backward(rows, self.weight(rows, window)))
        return losses


@trainer("last-window-taken-apart", "huggingface/accelerate#1847", ACCUMULATED, words="an update of its own")
class TakenApart(Trainer):
    """That the loader is at its end makes a step of every micro-batch of its last batch."""

    def windows(self, order: Sequence[int]) -> Iterator[Window]:
        *full, last = super().windows(order)
        yield from full
        yield from ([rows] for rows in last)
