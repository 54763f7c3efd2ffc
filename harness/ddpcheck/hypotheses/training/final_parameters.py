"""Causes of wrong final parameters of a training run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...causes import Cause, training
from ...oracle.training_runs import Run, stacked
from ...seeded_values import Array
from .emulation import can_emulate, emulate
from .nearest_run import nearest
from .resumes import wrong_resumes
from .some_steps import wrong_in_some_steps
from .whole_runs import wrong_rules

Causes = tuple[Cause, ...]
"""The likeliest cause first; empty if no known cause explains it."""


def why_it_ends_elsewhere(run: Run) -> Causes:
    """The causes whose rules give the final parameters of this run."""
    if _frozen_layer_changed(run):
        return (training.FROZEN_LAYER_TRAINED(), *[training.FROZEN_NOT_IN_CHECKPOINT()] * (run.first > 0))
    if not can_emulate(run):
        other = nearest(stacked(run.parameters), _end(run), _with_other_optimizers(run))
        return (other,) if other else ()
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
    return wrong_in_some_steps(run, got, last) or _unreported_samples(run) or _few_bits(run)


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
    """The end of a run whose optimizer does not get all settings of the task."""
    spec = run.job.optimizer
    changed = [
        (training.DECAY_MISSING(), replace(spec, weight_decay=0.0)),
        (training.USUAL_BETAS(), replace(spec, betas=(0.9, 0.999), eps=1e-8)),
    ]
    return [(cause, _end(replace(run, job=replace(run.job, optimizer=other)))) for cause, other in changed]


def _end(run: Run) -> dict[str, Array]:
    """The parameters at the end of one process's run."""
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
