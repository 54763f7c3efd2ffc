"""The end of a training run: the law, and the causes of other ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from ddpcheck.causes import Cause, training
from ddpcheck.contract import Determinism
from ddpcheck.seeded_values import Array
from ddpcheck.verdict import Finding

from ..replicas.comparison import compare_arrays
from .drawn_runs import Run, stacked
from .hypotheses.emulation import can_emulate, emulate
from .hypotheses.nearest import nearest
from .hypotheses.resumes import wrong_resumes
from .hypotheses.some_steps import wrong_in_some_steps
from .hypotheses.whole_runs import wrong_rules
from .learning_rates import rates_follow

Causes = tuple[Cause, ...]
"""The likeliest first; empty if no known cause explains it."""


def ends_where_one_process_ends(run: Run) -> None:
    """The final parameters equal one process's, within rounding, with the same bits on all ranks."""
    what = f"after the training run{', which was resumed' if run.first else ''}"
    with explained(lambda: why_it_ends_elsewhere(run)):
        entries = run.moments[-1][-1].arrays["parameters"]
        compare_arrays(
            run.parameters,
            entries,
            "parameters",
            what,
            bits=(run.promised.world.determinism >= Determinism.BETWEEN_RANKS),
        )


@contextmanager
def explained(causes: Callable[[], Causes]) -> Iterator[None]:
    """A Finding from within gets these causes, if there are any."""
    try:
        yield
    except Finding as finding:
        found = causes()
        if not found:
            raise
        raise finding.blaming(*found) from None


@contextmanager
def unexplained(causes: Callable[[], Causes]) -> Iterator[None]:
    """A Finding from within that has no cause gets these."""
    try:
        yield
    except Finding as finding:
        raise (finding if finding.diagnosis.causes else finding.blaming(*causes())) from None


def why_it_ends_elsewhere(run: Run) -> Causes:
    """The causes whose rules lead to this end."""
    if _frozen_layer_changed(run):
        return (training.FROZEN_LAYER_TRAINED(), *[training.FROZEN_NOT_IN_CHECKPOINT()] * (run.first > 0))
    if not can_emulate(run):
        other = nearest(stacked(run.parameters), _end(run), _with_other_optimizers(run))
        return (other,) if other else _wrong_rates(run)
    *earlier, last = emulate(run).ends
    got, size = stacked(run.parameters), run.job.world_size
    known = [(_of_earlier_epoch(run, epoch), end) for epoch, end in enumerate(earlier)]
    if run.job.optimizer.name == "adam":
        known += [((cause,), end) for cause, end in _with_other_optimizers(run)]
    always = wrong_rules(run.plan, size, len(run.parameters[0]), terms=run.has_terms)
    for offered in [wrong_resumes(run.plan, run.first, size), always] if run.first else [always]:
        known = [*(((cause,), emulate(run, rules).ends[-1]) for cause, rules in offered), *known]
        if causes := nearest(got, last, known):
            return causes
    return wrong_in_some_steps(run, got, last) or _unreported_samples(run) or _few_bits(run) or _wrong_rates(run)


def parameters_wrong_too(run: Run) -> Causes:
    """The causes of wrong final parameters, from which other failures may follow. Empty if the parameters are right."""
    try:
        ends_where_one_process_ends(run)
    except Finding as finding:
        return (*finding.diagnosis.causes, training.PARAMETERS_WRONG_TOO())
    return ()


def _of_earlier_epoch(run: Run, epoch: int) -> Causes:
    """Causes of a run that holds the parameters of an epoch that is not the last."""
    epochs = len(run.indices)
    saved_early = run.first == epochs and epoch == epochs - 2
    return (
        *[training.LAST_EPOCH_NOT_SAVED(ranks="all ranks")] * saved_early,
        training.ENDS_WITH_EPOCH(epoch=epoch),
        *[training.BEST_INSTEAD_OF_LAST()] * run.plan.keep_best,
    )


def _few_bits(run: Run) -> Causes:
    """Whether every learned value is one of float16."""
    values = np.concatenate([array.ravel() for array in stacked(run.parameters).values()])
    with np.errstate(over="ignore"):
        narrow = bool(np.array_equal(values.astype(np.float16), values))
    return (training.RUN_IN_FLOAT16(),) * narrow


def _wrong_rates(run: Run) -> Causes:
    """The causes of wrong reported learning rates; empty if they are right."""
    try:
        rates_follow(run)
    except Finding as finding:
        return (*finding.diagnosis.causes, training.RATES_WRONG_TOO())
    return ()


def _unreported_samples(run: Run) -> Causes:
    """Whether there are samples that no rank reports."""
    if run.promised.sampler.remainder == "drop":
        return ()
    assert run.job.data is not None
    for epoch, ranks in enumerate(run.indices):
        if left := sorted(set(range(run.job.data.samples)) - set(np.concatenate(ranks).tolist())):
            return (training.REPORTED_INDICES_WRONG(epoch=epoch, sample=left[0]),)
    return ()


def _with_other_optimizers(run: Run) -> list[tuple[Cause, dict[str, Array]]]:
    """The ends of runs whose optimizer lacks some settings of the task."""
    spec = run.job.optimizer
    changed = [
        (training.DECAY_MISSING(), replace(spec, weight_decay=0.0)),
        (training.USUAL_BETAS(), replace(spec, betas=(0.9, 0.999), eps=1e-8)),
    ]
    return [(cause, _end(replace(run, job=replace(run.job, optimizer=other)))) for cause, other in changed]


def _end(run: Run) -> dict[str, Array]:
    """The parameters where one process ends."""
    return {name: entry.value.exact for name, entry in run.moments[-1][-1].arrays["parameters"].items()}


def _frozen_layer_changed(run: Run) -> bool:
    model, law = run.job.model, run.moments[-1][-1].arrays["parameters"]
    assert model is not None
    frozen = [tensor.name for tensor in model.tensors() if tensor.role == "frozen"]
    return any(
        not np.array_equal(got[name], law[name].value.exact[rank])
        for name in frozen
        for rank, got in enumerate(run.parameters)
    )
