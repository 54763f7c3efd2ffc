"""Where a training run ends: the law, and by which other rules one ends that did not end there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from ddpcheck.contract import Determinism
from ddpcheck.values import Array
from ddpcheck.verdict import Finding

from ..replicas.comparison import compare_arrays
from .drawn_runs import Run, stacked
from .emulated import can_emulate, emulate
from .gone_wrong import wrong_rules
from .in_part import in_part
from .nearest import nearest
from .rates import rates_follow
from .wrong_resumes import wrong_resumes


def ends_where_one_process_ends(run: Run) -> None:
    """The parameters at the end, within rounding, and with the same bits on all ranks."""
    what = f"after the training run{', which was resumed' if run.first else ''}"
    with explained(lambda: whence(run)):
        entries = run.moments[-1][-1].arrays["parameters"]
        compare_arrays(
            run.parameters,
            entries,
            "parameters",
            what,
            bits=(run.promised.world.determinism >= Determinism.BETWEEN_RANKS),
        )


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


@contextmanager
def unexplained(cause: Callable[[], str]) -> Iterator[None]:
    """A Finding from within that has no cause gets this one."""
    try:
        yield
    except Finding as finding:
        raise (finding if finding.diagnosis.cause else finding.blaming(cause())) from None


def whence(run: Run) -> str:
    """By which rules a run ends where this one did, in words; empty if by none that is known."""
    size = run.job.world_size
    always = wrong_rules(run.plan, size, len(run.parameters[0]), terms=run.has_terms)
    candidates = [wrong_resumes(run.plan, run.first, size), always] if run.first else [always]
    if _moved_what_is_frozen(run):
        lost = ", or it is not in the checkpoint, and each rank builds its own" * (run.first > 0)
        return f"a layer that does not learn was changed: weight decay, or momentum, reaches it as well{lost}"
    if not can_emulate(run):
        return nearest(stacked(run.parameters), _ends(run), _by_other_optimizers(run)) or _by_its_rates(run)
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
    return in_part(run, got, last) or _not_told(run) or _by_its_bits(run) or _by_its_rates(run)


def elsewhere(run: Run) -> str:
    """That its parameters at the end are wrong, too, and why: whatever else is may come of that. Empty if they are right."""
    try:
        ends_where_one_process_ends(run)
    except Finding as finding:
        told = (f"; {cause.headline}" for cause in finding.diagnosis.causes)
        return "".join(("the parameters at the end are wrong, too", *told))
    return ""


def _by_its_bits(run: Run) -> str:
    """Whether all that was learned has few bits."""
    values = np.concatenate([array.ravel() for array in stacked(run.parameters).values()])
    with np.errstate(over="ignore"):
        narrow = bool(np.array_equal(values.astype(np.float16), values))
    return "parameters have no more bits than float16: they are rounded to it, at the end or on the way" * narrow


def _by_its_rates(run: Run) -> str:
    """What it says if the learning rates that a run tells are wrong as well."""
    try:
        rates_follow(run)
    except Finding as finding:
        cause = finding.diagnosis.cause
        told = cause.headline if cause is not None else finding.diagnosis.headline
        return f"the learning rates that it tells are wrong, too: {told}"
    return ""


def _not_told(run: Run) -> str:
    """What it says if the samples that a run tells are not all that there are."""
    if run.promised.sampler.remainder == "drop":
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
