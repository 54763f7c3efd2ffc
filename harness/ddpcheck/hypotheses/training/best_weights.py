"""Hypotheses about best weights that are not those of the best epoch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...causes import Cause
from ...causes.training import best_weights as causes
from ...oracle.training_runs import Run
from .emulation import Emulation, can_emulate, emulate
from .epoch_losses import own_losses
from .nearest_run import nearest


@dataclass(frozen=True)
class WrongBest:
    """A run whose epoch with the lowest loss is `best`, and whose best weights are others."""

    run: Run
    best: int

    @cached_property
    def emulation(self) -> Emulation:
        return emulate(self.run)

    @cached_property
    def epochs(self) -> tuple[int, ...]:
        """The epoch whose final parameters each rank holds; `best` if there is none. Empty if unknown."""
        ranks = range(len(self.run.best)) if can_emulate(self.run) else ()
        return tuple(_epoch_of(self.run, self.emulation, self.best, rank) for rank in ranks)

    @property
    def held(self) -> int | None:
        """The other epoch whose parameters all ranks hold."""
        return self.epochs[0] if len(set(self.epochs)) == 1 and self.epochs[0] != self.best else None

    @property
    def last(self) -> bool:
        """Whether that is the last epoch."""
        return self.held == len(self.run.indices) - 1

    @cached_property
    def own_best(self) -> tuple[int, ...]:
        """The best epoch by each rank's own loss."""
        losses = [own_losses(windows) for windows in self.emulation.losses]
        return tuple(np.argmin(losses, axis=0).tolist())


def best_forgotten_on_resume(of: WrongBest) -> Cause | None:
    """The best epoch is before the resume, and ranks hold a later one."""
    forgotten = of.held is not None and of.best < of.run.first <= of.held
    return causes.BEST_FORGOTTEN_ON_RESUME() if forgotten else None


def later_of_equal_best(of: WrongBest) -> Cause | None:
    """Two epochs have the lowest loss, and ranks hold the other one."""
    losses = of.run.losses[0]
    equal = of.held is not None and not of.run.before and losses[of.held] == losses[of.best]
    return causes.LATER_OF_EQUAL_BEST(epoch=of.best) if equal else None


def checkpoint_before_best(of: WrongBest) -> Cause | None:
    """The epoch before the resume is the best, and its checkpoint has not kept it."""
    before = of.held is not None and of.held < of.best == of.run.first - 1
    return causes.CHECKPOINT_BEFORE_BEST(epoch=of.best) if before else None


def lowest_starts_finite(of: WrongBest) -> Cause | None:
    """All losses are huge: none is lower than the number with which the search begins."""
    return causes.LOWEST_STARTS_FINITE() if of.last and min(of.run.losses[0]) > 1e6 else None


def best_is_last_of_early_stop(of: WrongBest) -> Cause | None:
    return causes.BEST_IS_LAST_OF_EARLY_STOP() if of.last and of.run.plan.patience else None


def best_by_own_loss(of: WrongBest) -> Cause | None:
    """All ranks hold the best epoch of one rank."""
    return causes.BEST_BY_OWN_LOSS(rank=of.own_best.index(of.held)) if of.held in of.own_best else None


def best_not_copied(of: WrongBest) -> Cause | None:
    """The kept arrays are those of the model, which later steps change."""
    return causes.BEST_NOT_COPIED(epoch=of.best) if of.last else None


def small_gain_ignored(of: WrongBest) -> Cause | None:
    """The best epoch is little better than the one that ranks hold."""
    if of.held is None or of.run.before:
        return None
    losses = of.run.losses[0]
    return causes.SMALL_GAIN_IGNORED(epoch=of.best, gain=losses[of.held] - losses[of.best])


def best_kept_before_last_step(of: WrongBest) -> Cause | None:
    """All ranks hold the parameters before the last step of the best epoch."""
    early = set(of.epochs) == {of.best} and all(
        _held_before_last_step(of.run, of.emulation, of.best, rank) for rank in range(len(of.run.best))
    )
    return causes.BEST_KEPT_BEFORE_LAST_STEP(epoch=of.best) if early else None


def best_of_epoch(of: WrongBest) -> Cause | None:
    return causes.BEST_OF_EPOCH(epoch=of.held) if of.held is not None else None


def best_by_each_rank(of: WrongBest) -> Cause | None:
    """Each rank holds the best epoch by its own loss."""
    own = len(set(of.epochs)) > 1 and of.epochs == of.own_best
    return causes.BEST_BY_EACH_RANK(epochs=of.epochs) if own else None


def best_differs_between_ranks(of: WrongBest) -> Cause | None:
    return causes.BEST_DIFFERS_BETWEEN_RANKS(epochs=of.epochs) if len(set(of.epochs)) > 1 else None


def _epoch_of(run: Run, emulation: Emulation, best: int, rank: int) -> int:
    held = {name: array[None] for name, array in run.best[rank].items()}
    ends = [{name: array[rank : rank + 1] for name, array in end.items()} for end in emulation.ends]
    others = [(epoch, end) for epoch, end in enumerate(ends) if epoch != best]
    epoch = nearest(held, ends[best], others)
    return best if epoch is None else epoch


def _held_before_last_step(run: Run, emulation: Emulation, best: int, rank: int) -> bool:
    held = {name: array[None] for name, array in run.best[rank].items()}
    end, early = (
        {name: array[rank : rank + 1] for name, array in arrays.items()}
        for arrays in (emulation.ends[best], emulation.before_last_steps[best])
    )
    return nearest(held, end, [(True, early)]) is True
