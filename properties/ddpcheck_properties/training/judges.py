"""Judges of one training run, in words that tell the likeliest cause."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from ddpcheck import expect
from ddpcheck.capabilities import Capabilities
from ddpcheck.diagnosis import Evidence
from ddpcheck.job import Job
from ddpcheck.numerics import gamma
from ddpcheck.trace import Trace
from ddpcheck.values import Array
from ddpcheck.verdict import Finding

from ..drawing import Judge
from ..replicas.comparison import compare_arrays
from .drawn_runs import Run, plan_of, stacked
from .emulated import can_emulate, emulate, nearest
from .gone_wrong import Rules, wrong_factors, wrong_resumes, wrong_rules
from .in_part import in_part
from .losses import own_losses

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


def ends_where_one_process_ends(run: Run) -> None:
    """The parameters at the end, within rounding, and with the same bits on all ranks."""
    what = f"after the training run{', which was resumed' if run.first else ''}"
    size = run.job.world_size
    always = wrong_rules(run.plan, size, len(run.parameters[0]), terms=run.has_terms)
    candidates = [wrong_resumes(run.plan, run.first, size), always] if run.first else [always]
    with explained(lambda: whence(run, *candidates)):
        entries = run.moments[-1][-1].arrays["parameters"]
        compare_arrays(run.parameters, entries, "parameters", what, bits=run.promised.same_bits_on_all_ranks)


@contextmanager
def explained(cause: Callable[[], str]) -> Iterator[None]:
    """A Finding from within gets this cause, if there is one."""
    try:
        yield
    except Finding as finding:
        sentence = cause()
        if not sentence:
            raise
        raise finding.blaming(sentence) from None


def whence(run: Run, *candidates: Sequence[tuple[str, Rules]]) -> str:
    """By which rules a run ends where this one did, in words; empty if by none of these. The first candidates that have one."""
    if _moved_what_is_frozen(run):
        lost = ", or it is not in the checkpoint, and each rank builds its own" * (run.first > 0)
        return f"a layer that does not learn was changed: weight decay, or momentum, reaches it as well{lost}"
    if not can_emulate(run):
        return nearest(stacked(run.parameters), _ends(run), _by_other_optimizers(run))
    *earlier, last = emulate(run).ends
    got = stacked(run.parameters)
    kept = ", the best ones, perhaps, in place of the last" if run.plan.keep_best else ""
    late = "; or the last epoch before is missing: what was saved is of before it" * (run.first > len(earlier))
    known = [
        (f"these are the parameters at the end of epoch {epoch}{kept}{late * (epoch == len(earlier) - 1)}", end)
        for epoch, end in enumerate(earlier)
    ]
    known += _by_other_optimizers(run) if run.job.optimizer.name == "adam" else []
    for offered in candidates:
        known = [*((words, emulate(run, rules).ends[-1]) for words, rules in offered), *known]
        if words := nearest(got, last, known):
            return words
    return in_part(run, got, last) or _not_told(run)


def _not_told(run: Run) -> str:
    """What it says if the samples that a run tells are not all that there are."""
    if run.promised.remainder == "drop":
        return ""
    assert run.job.data is not None
    for epoch, ranks in enumerate(run.indices):
        if left := sorted(set(range(run.job.data.samples)) - set(np.concatenate(ranks).tolist())):
            return (
                f"in epoch {epoch} no rank tells that it used sample {left[0]}: if one did, the indices that are told are not "
                "those that were used"
            )
    return ""


def _by_other_optimizers(run: Run) -> list[tuple[str, dict[str, Array]]]:
    """Where a run would end by an optimizer that did not get all that the task says."""
    spec = run.job.optimizer
    changed = [
        ("weight decay is missing", replace(spec, weight_decay=0.0)),
        ("betas and eps are the usual ones, not those of the task", replace(spec, betas=(0.9, 0.999), eps=1e-8)),
    ]
    return [(words, _ends(replace(run, job=replace(run.job, optimizer=other)))) for words, other in changed]


def _ends(run: Run) -> dict[str, Array]:
    """The parameters where one process ends."""
    return {name: entry.value.exact for name, entry in run.moments[-1][-1].arrays["parameters"].items()}


def _moved_what_is_frozen(run: Run) -> bool:
    model, law = run.job.model, run.moments[-1][-1].arrays["parameters"]
    assert model is not None
    frozen = [tensor.name for tensor in model.tensors() if tensor.role == "frozen"]
    return any(
        not np.array_equal(got[name], law[name].value.exact[rank])
        for name in frozen
        for rank, got in enumerate(run.parameters)
    )


def rates_follow(run: Run) -> None:
    """Learning rates that a run tells are those of the schedule, with the same bits on all ranks."""
    every = np.array(run.schedule)
    told = [None if values is None else np.array(values) for values in run.rates]
    before = len(every) // run.plan.epochs * run.first
    for rank, got in enumerate(told):
        if got is not None:
            bound = np.full(len(every) - before, run.job.optimizer.lr * gamma(4 * len(every) + 4, "float32"))
            known = partial(_rates_gone_wrong, run, rank, every, before)
            expect.within(got, every[before:], bound, "learning rates of the steps", rank, known)
    expect.same_on_all_ranks(told, "learning rates of the steps")


def _rates_gone_wrong(run: Run, rank: int, every: Array, before: int) -> Evidence:
    """What a rank's learning rates would be; every: those of all steps; before: how many come before what is told."""
    steps, lr, plan = len(every), run.job.optimizer.lr, run.plan
    late = "each is that of the step after: the schedule has gone on before it is read, or before the step"
    known = [(late, np.append(every[1:], every[-1] - lr / steps))]
    known += [
        (sentence, np.array([lr * factor(step, steps) for step in range(steps)]))
        for sentence, factor in wrong_factors(plan, run.job.world_size, len(run.parameters[0]))
    ]
    size, each = plan.batch_size * plan.micro_batches, steps // plan.epochs
    used = np.array([len(epoch[rank][start * size :][:size]) for epoch in run.indices for start in range(each)])
    share = (np.cumsum(used) - used) / max(1, used.sum())
    known.append(("it follows the samples that this rank has used itself: ranks differ", lr * (1 - share)))
    told = [(sentence, array[before:]) for sentence, array in known]
    told.append(("the schedule begins anew after resuming", every[: steps - before]))
    return Evidence(alternatives=tuple(told), precision=False)


def holds_the_best(run: Run) -> None:
    """The parameters at the end of the epoch whose told loss is the lowest, on every rank."""
    best = int(np.argmin([*run.before, *run.losses[0]]))
    entries = run.moments[best][-1].arrays["parameters"]
    with explained(lambda: _other_epoch(run, best)):
        time = f"of the best weights: epoch {best} has the lowest loss"
        compare_arrays(run.best, entries, "parameters", time, bits=run.promised.same_bits_on_all_ranks)


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
            why = f", the last, though the loss of epoch {best} is lower: they are kept by reference, and no copy, or not at all"
        elif not run.before:
            gain = run.losses[0][held[0]] - run.losses[0][best]
            why = f", though the loss of epoch {best} is lower, by {gain:.1g}"
        return f"all ranks hold the parameters of epoch {held[0]}{why}"
    listed = ", ".join(f"rank {rank} those of epoch {epoch}" for rank, epoch in enumerate(held))
    if own_best.tolist() == held:
        return f"each rank goes by a loss of its own, and keeps other parameters: {listed}"
    return f"the ranks do not keep the same parameters: {listed}"
