"""The output of rank 0: a progress bar during an epoch on a terminal, and one line after each epoch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .loop import Epoch
from .shown_output import unlimited


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


@dataclass
class Display:
    """A ProgressObserver that prints; `epochs` is the number of epochs."""

    epochs: int
    console: Console = field(
        default_factory=lambda: Console(file=unlimited(sys.stdout), highlight=False, soft_wrap=True)
    )

    @property
    def _animated(self) -> bool:
        return self.console.is_terminal and not self.console.is_dumb_terminal

    @contextmanager
    def epoch(self, number: int, steps: int) -> Iterator[Callable[[], object]]:
        with Progress(
            TextColumn(f"epoch {self._of(number)}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self._animated,
        ) as progress:
            task = progress.add_task("", total=steps)
            yield lambda: progress.advance(task)

    def done(self, epoch: Epoch) -> None:
        speed = epoch.samples / epoch.seconds if epoch.seconds else 0.0
        self.say(
            f"epoch {self._of(epoch.number)}   loss {epoch.loss:.4f}   train {percent(epoch.train_accuracy):>7}   "
            f"test {percent(epoch.test_accuracy):>7}   {speed:9,.0f} samples/s"
        )

    @contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """Show a message during a long step; only on a terminal."""
        if not self._animated:
            yield
            return
        with self.console.status(doing):
            yield

    def say(self, text: str, style: str = "") -> None:
        self.console.print(text, style=style or None, markup=False)

    def _of(self, number: int) -> str:
        return f"{number:>{len(str(self.epochs))}}/{self.epochs}"
