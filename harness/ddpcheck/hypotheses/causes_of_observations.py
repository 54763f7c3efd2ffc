"""The likeliest causes of a wrong value of an observation: from the other arrays, and from its place in the Job."""

from __future__ import annotations

from ..causes import Cause
from .choose_causes import all_causes, first_cause
from .observed_arrays import WrongArrays
from .ordered_hypotheses.arrays import OF_ONE_OF_SEVERAL_ARRAYS, OF_SEVERAL_ARRAYS
from .ordered_hypotheses.gradients import OF_A_LATE_VALUE, OF_A_VALUE_IN_A_JOB, OF_AN_UNEXPLAINED_VALUE
from .programs import WrongInJob


def causes_of_arrays(of: WrongArrays) -> tuple[Cause, ...]:
    """Of one wrong array, considering the others."""
    return *first_cause(OF_ONE_OF_SEVERAL_ARRAYS, of), *all_causes(OF_SEVERAL_ARRAYS, of)


def causes_in_job(of: WrongInJob) -> tuple[Cause, ...]:
    """Of a wrong value, considering its place in the Job."""
    found = *all_causes(OF_A_VALUE_IN_A_JOB, of), *first_cause(OF_A_LATE_VALUE, of)
    return found or first_cause(OF_AN_UNEXPLAINED_VALUE, of)
