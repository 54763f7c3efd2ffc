"""Hypotheses about wrong final parameters of a training run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...causes import Cause, training
from ...oracle.training_runs import Run, stacked
from ...seeded_values import Array
from .emulation import emulate
from .nearest_run import nearest
from .optimizer import Arrays
from .resumes import wrong_resumes
from .some_steps import wrong_in_some_steps
from .whole_runs import Candidates, wrong_rules

Causes = tuple[Cause, ...]
"""The likeliest cause first; empty if no known cause explains it."""
Ends = list[tuple[Causes, Arrays]]
"""Causes, the likeliest first, each with the final parameters that they give."""


_LAST_BITS = 4
"""Units in the last place."""


@dataclass(frozen=True)
class OtherEnd:
    """A training run that ends with other parameters than one process's run."""

    run: Run

    @cached_property
    def got(self) -> Arrays:
        return stacked(self.run.parameters)

    @cached_property
    def ends(self) -> list[Arrays]:
        """The right parameters after each epoch, as an emulated run gives them."""
        return emulate(self.run).ends

    @cached_property
    def after_resumes(self) -> Ends:
        """Of runs that lost state when they were resumed."""
        run = self.run
        return self.emulated(wrong_resumes(run.plan, run.first, run.job.world_size)) if run.first else []

    @cached_property
    def of_other_epochs_and_settings(self) -> Ends:
        """Of runs that end with an earlier epoch, and of those that ignore settings of Adam."""
        known = [(_of_earlier_epoch(self.run, epoch), end) for epoch, end in enumerate(self.ends[:-1])]
        adam = self.run.job.optimizer.name == "adam"
        return known + [((cause,), end) for cause, end in (_with_other_optimizers(self.run) if adam else ())]

    def emulated(self, offered: Candidates) -> Ends:
        return [((cause,), emulate(self.run, rules).ends[-1]) for cause, rules in offered]


def frozen_layer_trained(of: OtherEnd) -> Causes:
    """A frozen layer has changed; after a resume, perhaps it was not in the checkpoint."""
    if not _frozen_layer_changed(of.run):
        return ()
    return (training.steps.FROZEN_LAYER_TRAINED(), *[training.steps.FROZEN_NOT_IN_CHECKPOINT()] * (of.run.first > 0))


def settings_ignored(of: OtherEnd) -> Cause | None:
    """The optimizer does not get all settings of the task."""
    return nearest(of.got, _end(of.run), _with_other_optimizers(of.run))


def state_lost_on_resume(of: OtherEnd) -> Causes:
    """A run that loses state when it is resumed ends here."""
    known = [*of.after_resumes, *of.of_other_epochs_and_settings] if of.run.first else []
    return nearest(of.got, of.ends[-1], known) or ()


def by_other_rules(of: OtherEnd) -> Causes:
    """A run that breaks a rule in all its steps ends here."""
    run = of.run
    rules = wrong_rules(run.plan, run.job.world_size, len(run.parameters[0]), terms=run.has_terms, uneven=run.uneven)
    known = [*of.emulated(rules), *of.after_resumes, *of.of_other_epochs_and_settings]
    return nearest(of.got, of.ends[-1], known) or ()


def in_some_steps(of: OtherEnd) -> Causes:
    """A run that breaks a rule in some steps ends here."""
    return wrong_in_some_steps(of.run, of.got, of.ends[-1])


def unreported_samples(of: OtherEnd) -> Cause | None:
    """There are samples that no rank reports, and padding or the remainder does not explain them."""
    run = of.run
    assert run.job.data is not None
    for epoch, ranks in enumerate(run.indices if run.promised.sampler.remainder != "drop" else ()):
        if left := sorted(set(range(run.job.data.samples)) - set(np.concatenate(ranks).tolist())):
            return training.samples.REPORTED_INDICES_WRONG(epoch=epoch, sample=left[0])
    return None


def run_in_float16(of: OtherEnd) -> Cause | None:
    """Every learned value is one of float16."""
    values = np.concatenate([array.ravel() for array in of.got.values()])
    with np.errstate(over="ignore"):
        return training.steps.RUN_IN_FLOAT16() if np.array_equal(values.astype(np.float16), values) else None


def _of_earlier_epoch(run: Run, epoch: int) -> Causes:
    """Causes of a run that holds the parameters of an epoch that is not the last."""
    epochs = len(run.indices)
    saved_early = run.first == epochs and epoch == epochs - 2
    return (
        *[training.resumes.LAST_EPOCH_NOT_SAVED(ranks="all ranks")] * saved_early,
        training.steps.ENDS_WITH_EPOCH(epoch=epoch),
        *[training.best_weights.BEST_INSTEAD_OF_LAST()] * run.plan.keep_best,
    )


def _with_other_optimizers(run: Run) -> list[tuple[Cause, dict[str, Array]]]:
    """The end of a run whose optimizer does not get all settings of the task."""
    spec = run.job.optimizer
    changed = [
        (training.steps.DECAY_MISSING(), replace(spec, weight_decay=0.0)),
        (training.steps.USUAL_BETAS(), replace(spec, betas=(0.9, 0.999), eps=1e-8)),
    ]
    return [(cause, _end(replace(run, job=replace(run.job, optimizer=other)))) for cause, other in changed]


def _end(run: Run) -> dict[str, Array]:
    """The parameters at the end of one process's run."""
    return {name: entry.value.exact for name, entry in run.moments[-1][-1].arrays["parameters"].items()}


def _frozen_layer_changed(run: Run) -> bool:
    """Whether a frozen value differs by more than its last bits, which a checkpoint may round."""
    model, law = run.job.model, run.moments[-1][-1].arrays["parameters"]
    assert model is not None
    frozen = [tensor.name for tensor in model.tensors() if tensor.role == "frozen"]
    return any(
        not (abs(got[name] - law[name].value.exact[rank]) <= _LAST_BITS * np.spacing(abs(got[name]))).all()
        for name in frozen
        for rank, got in enumerate(run.parameters)
    )
