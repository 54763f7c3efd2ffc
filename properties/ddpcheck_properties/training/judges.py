"""Judges of one training run, in words that tell the likeliest cause."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ddpcheck import expect
from ddpcheck.contract import Capabilities, Determinism
from ddpcheck.job import Job
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import Judge
from ..replicas.comparison import compare_arrays
from .drawn_runs import Run, plan_of
from .emulated import can_emulate, emulate
from .ends import elsewhere, explained, whence
from .losses import own_losses
from .nearest import nearest

APART = "each rank decides by its own loss whether to go on: one has ended its run, and the others wait for it"


def of_run(promised: Capabilities, *judges: Callable[[Run], None]) -> Judge:
    """The judge of a Job with one training run."""

    def judge(job: Job, trace: Trace) -> None:
        try:
            expect.completed(trace)
        except Finding as finding:
            raise (finding.blaming(APART) if plan_of(job).patience else finding) from None
        run = Run.told(job, trace, promised)
        for one in judges:
            one(run)

    return judge


def holds_the_best(run: Run) -> None:
    """The parameters at the end of the epoch whose told loss is the lowest, on every rank."""
    best = int(np.argmin([*run.before, *run.losses[0]]))
    entries = run.moments[best][-1].arrays["parameters"]
    with explained(lambda: _other_epoch(run, best) or _until(run, best) or elsewhere(run)):
        time = f"of the best weights: epoch {best} has the lowest loss"
        compare_arrays(
            run.best, entries, "parameters", time, bits=(run.promised.world.determinism >= Determinism.BETWEEN_RANKS)
        )


def _until(run: Run, best: int) -> str:
    """What went wrong in the epochs up to the best, if the best weights are those of a run by other rules."""
    if run.first:
        return ""
    return whence(replace(run, indices=run.indices[: best + 1], parameters=run.best))


def ends_with_the_last(run: Run) -> None:
    """If the best epoch is not the last, the parameters at the end are not its: also where rounding could go far."""
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
            f"these are the parameters at the end of epoch {best}, the best ones, perhaps, in place of the last: loaded into the "
            "model at the end",
        )


def holds_the_best_number(run: Run) -> None:
    """Of a run that diverges, the parameters at the end of its first epoch: the only one with a finite loss."""
    told = run.losses[0]
    if not math.isfinite(told[0]) or any(map(math.isfinite, told[1:])):
        return
    first = replace(run, indices=run.indices[:1]).moments[0][-1].arrays["parameters"]
    with explained(
        lambda: "a loss that is NaN is never worse, as no comparison with it is true: it counts as the lowest"
    ):
        compare_arrays(run.best, first, "parameters", f"of the best weights, where the losses are {told},", bits=False)


def _other_epoch(run: Run, best: int) -> str:
    """Which epoch's parameters each rank holds, where that is not the best one's on all."""
    if not can_emulate(run):
        return ""
    emulation = emulate(run)
    ends, held, almost = emulation.ends, [], []
    for rank, arrays in enumerate(run.best):
        mine = {name: array[None] for name, array in arrays.items()}
        own = [{name: array[rank : rank + 1] for name, array in end.items()} for end in ends]
        text = nearest(mine, own[best], [(str(epoch), end) for epoch, end in enumerate(own) if epoch != best])
        held.append(int(text) if text else best)
        early = {name: array[rank : rank + 1] for name, array in emulation.almost[best].items()}
        almost.append(nearest(mine, own[best], [("early", early)]))
    if set(held) == {best}:
        return f"they are kept before the last step of epoch {best}, and not at its end" * all(almost)
    own_best = np.argmin([own_losses(windows) for windows in emulation.losses], axis=0)
    if len(set(held)) == 1:
        why = ""
        if best < run.first <= held[0]:
            why = ": what was the best before the run was resumed is forgotten"
        elif not run.before and run.losses[0][held[0]] == run.losses[0][best]:
            why = f": its loss is the same, and the first of equal ones, epoch {best}, should count"
        elif held[0] < best == run.first - 1:
            why = f": the checkpoint was saved before its last epoch, {best}, was compared with those before"
        elif held[0] == len(ends) - 1 and min(run.losses[0]) > 1e6:
            why = ": no loss is low enough to be the best: the lowest so far begins at a number, not at infinity"
        elif held[0] == len(ends) - 1 and run.plan.patience:
            why = ": the last one, which a run that ends early ends with"
        elif held[0] in own_best:
            why = f": that is the best by rank {own_best.tolist().index(held[0])}'s own loss"
        elif held[0] == len(ends) - 1:
            why = f", the last, though the loss of epoch {best} is lower: they are kept by reference, and no copy, "
            why += "or whatever its loss, as where the lowest so far is not kept; or not at all"
        elif not run.before:
            gain = run.losses[0][held[0]] - run.losses[0][best]
            why = f", though the loss of epoch {best} is lower, by {gain:.1g}"
        return f"all ranks hold the parameters of epoch {held[0]}{why}"
    listed = ", ".join(f"rank {rank} those of epoch {epoch}" for rank, epoch in enumerate(held))
    if own_best.tolist() == held:
        return f"each rank goes by a loss of its own, and keeps other parameters: {listed}"
    return f"the ranks do not keep the same parameters: {listed}"
