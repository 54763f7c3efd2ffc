"""Causes of best weights that are not those of the best epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...causes import Cause, training
from ...oracle.training_runs import Run
from .emulation import Emulation, can_emulate, emulate
from .epoch_losses import own_losses
from .final_parameters import Causes
from .nearest_run import nearest


def why_other_epoch(run: Run, best: int) -> Causes:
    """The causes why ranks hold the parameters of other epochs than the best."""
    if not can_emulate(run):
        return ()
    emulation = emulate(run)
    epochs = [_epoch_of(run, emulation, best, rank) for rank in range(len(run.best))]
    if set(epochs) == {best}:
        early = all(_held_before_last_step(run, emulation, best, rank) for rank in range(len(run.best)))
        return (training.BEST_KEPT_BEFORE_LAST_STEP(epoch=best),) * early
    own_best: list[int] = np.argmin([own_losses(windows) for windows in emulation.losses], axis=0).tolist()
    if len(set(epochs)) == 1:
        why = _one_other_epoch(run, best, epochs[0], own_best)
        return (*([why] if why else []), training.BEST_OF_EPOCH(epoch=epochs[0]))
    if own_best == epochs:
        return (training.BEST_BY_EACH_RANK(epochs=tuple(epochs)),)
    return (training.BEST_DIFFERS_BETWEEN_RANKS(epochs=tuple(epochs)),)


def _one_other_epoch(run: Run, best: int, held: int, own_best: Sequence[int]) -> Cause | None:
    """The cause why all ranks hold the parameters of epoch `held`. own_best: the best epoch by each rank's own loss."""
    losses, last = run.losses[0], held == len(run.indices) - 1
    if best < run.first <= held:
        return training.BEST_FORGOTTEN_ON_RESUME()
    if not run.before and losses[held] == losses[best]:
        return training.LATER_OF_EQUAL_BEST(epoch=best)
    if held < best == run.first - 1:
        return training.CHECKPOINT_BEFORE_BEST(epoch=best)
    if last and min(losses) > 1e6:
        return training.LOWEST_STARTS_FINITE()
    if last and run.plan.patience:
        return training.BEST_IS_LAST_OF_EARLY_STOP()
    if held in own_best:
        return training.BEST_BY_OWN_LOSS(rank=own_best.index(held))
    if last:
        return training.BEST_NOT_COPIED(epoch=best)
    if not run.before:
        return training.SMALL_GAIN_IGNORED(epoch=best, gain=losses[held] - losses[best])
    return None


def _epoch_of(run: Run, emulation: Emulation, best: int, rank: int) -> int:
    """The epoch whose final parameters a rank holds as the best; `best` if there is none."""
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
