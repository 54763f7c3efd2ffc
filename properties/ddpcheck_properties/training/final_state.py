"""The end of a training run: the law, and the causes of other ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ddpcheck.causes import training
from ddpcheck.hypotheses.causes_of_training import causes_of_parameters
from ddpcheck.hypotheses.training.final_parameters import Causes
from ddpcheck.hypotheses.training.learning_rates import rate_rounded
from ddpcheck.oracle.training_runs import Run
from ddpcheck.verdict import Finding

from ..replicas.comparison import compare_arrays
from .learning_rates import rates_follow


def ends_where_one_process_ends(run: Run) -> None:
    """The final parameters equal one process's, within rounding, with the same bits on all ranks."""
    what = f"after the training run{', which was resumed' if run.first else ''}"
    with explained(lambda: causes_of_end(run)):
        entries = run.moments[-1][-1].arrays["parameters"]
        compare_arrays(run.parameters, entries, "parameters", what, bits=run.promised.world.equal_bits_on_ranks)


@contextmanager
def explained(causes: Callable[[], Causes]) -> Iterator[None]:
    """A Finding raised inside gets these causes, if there are any."""
    try:
        yield
    except Finding as finding:
        found = causes()
        if not found:
            raise
        raise finding.blaming(*found) from None


@contextmanager
def unexplained(causes: Callable[[], Causes]) -> Iterator[None]:
    """A Finding without a cause raised inside gets these."""
    try:
        yield
    except Finding as finding:
        raise (finding if finding.diagnosis.causes else finding.blaming(*causes())) from None


def causes_of_end(run: Run) -> Causes:
    """The causes of other final parameters; empty if no known cause explains them."""
    return causes_of_parameters(run) or rate_rounded(run) or _wrong_rates(run)


def parameters_wrong_too(run: Run) -> Causes:
    """The causes of wrong final parameters, from which other failures may follow. Empty if the parameters are right."""
    try:
        ends_where_one_process_ends(run)
    except Finding as finding:
        return (*finding.diagnosis.causes, training.steps.PARAMETERS_WRONG_TOO())
    return ()


def _wrong_rates(run: Run) -> Causes:
    """The causes of wrong reported learning rates; empty if they are right."""
    try:
        rates_follow(run)
    except Finding as finding:
        return (*finding.diagnosis.causes, training.schedules.RATES_WRONG_TOO())
    return ()
