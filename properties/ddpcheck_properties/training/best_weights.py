"""The best weights of a training run: the parameters at the end of the epoch with the lowest loss over all ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ddpcheck import expect
from ddpcheck.causes import Cause, training
from ddpcheck.contract import Determinism

from ..replicas.comparison import compare_arrays
from .drawn_runs import Run
from .final_state import Causes, explained, parameters_wrong_too, why_it_ends_elsewhere
from .hypotheses.emulation import Emulation, can_emulate, emulate
from .hypotheses.nearest import nearest
from .losses import own_losses


def holds_the_best(run: Run) -> None:
    """On every rank, the best weights are the parameters at the end of the epoch with the lowest reported loss."""
    best = int(np.argmin([*run.before, *run.losses[0]]))
    entries = run.moments[best][-1].arrays["parameters"]
    with explained(lambda: _other_epoch(run, best) or _wrong_until(run, best) or parameters_wrong_too(run)):
        time = f"of the best weights: epoch {best} has the lowest loss"
        compare_arrays(
            run.best, entries, "parameters", time, bits=(run.promised.world.determinism >= Determinism.BETWEEN_RANKS)
        )


def ends_with_the_last(run: Run) -> None:
    """If the best epoch is not the last, the final parameters are not the best weights, even beyond rounding bounds."""
    best, last = int(np.argmin([*run.before, *run.losses[0]])), len(run.moments) - 1
    then, now = (run.moments[epoch][-1].arrays["parameters"] for epoch in (best, last))
    if all(np.array_equal(then[name].value.exact, now[name].value.exact) for name in now):
        return  # nothing was learned in between
    for rank, (ends, kept) in enumerate(zip(run.parameters, run.best, strict=True)):
        moved = [name for name, array in kept.items() if not np.array_equal(ends[name], array)]
        expect.that(
            bool(moved) or best == last,
            f"parameters after the training run on rank {rank}: got those of epoch {best}, which has the lowest loss, to the "
            f"bit, but should be those of the last, epoch {last}",
            (training.ENDS_WITH_EPOCH(epoch=best), training.BEST_INSTEAD_OF_LAST()),
        )


def holds_the_best_number(run: Run) -> None:
    """In a run that diverges, the best weights are those of the first epoch, the only one with a finite loss."""
    losses = run.losses[0]
    if not math.isfinite(losses[0]) or any(map(math.isfinite, losses[1:])):
        return
    first = replace(run, indices=run.indices[:1]).moments[0][-1].arrays["parameters"]
    with explained(lambda: (training.NAN_COUNTS_AS_LOWEST(),)):
        compare_arrays(
            run.best, first, "parameters", f"of the best weights, where the losses are {losses},", bits=False
        )


def _wrong_until(run: Run, best: int) -> Causes:
    """The cause up to the best epoch, if the best weights are those of a run by other rules."""
    if run.first:
        return ()
    return why_it_ends_elsewhere(replace(run, indices=run.indices[: best + 1], parameters=run.best))


def _other_epoch(run: Run, best: int) -> Causes:
    """The cause if ranks hold the parameters of other epochs than the best."""
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
    """The cause if all ranks hold the parameters of epoch `held`. own_best: the best epoch by each rank's own loss."""
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
