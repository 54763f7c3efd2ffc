"""The likeliest causes of wrong parameters of a training run."""

from __future__ import annotations

from ..causes import Cause
from ..oracle.training_runs import Run
from .choose_causes import first_cause
from .ordered_hypotheses.training import OF_AN_EMULATED_END, OF_ANOTHER_END, OF_BEST_WEIGHTS, OF_ONE_OTHER_BEST_EPOCH
from .training.best_weights import WrongBest
from .training.emulation import can_emulate
from .training.final_parameters import OtherEnd


def causes_of_parameters(run: Run) -> tuple[Cause, ...]:
    """Of final parameters that are not those of one process; empty if no hypothesis explains them."""
    return first_cause(OF_AN_EMULATED_END if can_emulate(run) else OF_ANOTHER_END, OtherEnd(run))


def causes_of_best(run: Run, best: int) -> tuple[Cause, ...]:
    """Of best weights that are not those of the epoch `best`; empty if no hypothesis explains them."""
    of = WrongBest(run, best)
    return *first_cause(OF_ONE_OTHER_BEST_EPOCH, of), *first_cause(OF_BEST_WEIGHTS, of)
