"""The best weights of a training run: the parameters at the end of the epoch with the lowest loss over all ranks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import training
from ddpcheck.hypotheses.causes_of_training import causes_of_best
from ddpcheck.hypotheses.training.final_parameters import Causes
from ddpcheck.oracle.training_runs import Run

from ..replicas.comparison import compare_arrays
from .final_state import causes_of_end, explained, parameters_wrong_too


def holds_the_best(run: Run) -> None:
    """On every rank, the best weights are the parameters at the end of the epoch with the lowest reported loss."""
    best = int(np.argmin([*run.before, *run.losses[0]]))
    entries = run.moments[best][-1].arrays["parameters"]
    with explained(lambda: causes_of_best(run, best) or _wrong_until(run, best) or parameters_wrong_too(run)):
        time = f"of the best weights: epoch {best} has the lowest loss"
        compare_arrays(run.best, entries, "parameters", time, bits=run.promised.world.equal_bits_on_ranks)


def ends_with_the_last(run: Run) -> None:
    """If the best epoch is not the last, the final parameters are not the best weights, even beyond rounding bounds."""
    best, last = int(np.argmin([*run.before, *run.losses[0]])), len(run.moments) - 1
    then, now = (run.moments[epoch][-1].arrays["parameters"] for epoch in (best, last))
    if all(np.array_equal(then[name].value.exact, now[name].value.exact) for name in now):
        return  # no parameters changed in between
    for rank, (ends, kept) in enumerate(zip(run.parameters, run.best, strict=True)):
        moved = [name for name, array in kept.items() if not np.array_equal(ends[name], array)]
        assertions.that(
            bool(moved) or best == last,
            f"parameters after the training run on rank {rank}: got those of epoch {best}, which has the lowest loss, to the "
            f"bit, but should be those of the last, epoch {last}",
            (training.steps.ENDS_WITH_EPOCH(epoch=best), training.best_weights.BEST_INSTEAD_OF_LAST()),
        )


def holds_the_only_finite_epoch(run: Run) -> None:
    """In a run that diverges, the best weights are those of the first epoch, the only one with a finite loss."""
    losses = run.losses[0]
    if not math.isfinite(losses[0]) or any(map(math.isfinite, losses[1:])):
        return
    first = replace(run, indices=run.indices[:1]).moments[0][-1].arrays["parameters"]
    with explained(lambda: (training.best_weights.NAN_COUNTS_AS_LOWEST(),)):
        compare_arrays(
            run.best, first, "parameters", f"of the best weights, where the losses are {losses},", bits=False
        )


def _wrong_until(run: Run, best: int) -> Causes:
    """The cause up to the best epoch, if a run by other rules gives these best weights."""
    if run.first:
        return ()
    return causes_of_end(replace(run, indices=run.indices[: best + 1], parameters=run.best))
