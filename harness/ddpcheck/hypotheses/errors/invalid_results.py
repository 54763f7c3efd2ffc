"""Hypotheses about a result of a collective that the contract does not allow."""

from __future__ import annotations

import math

from ...causes import Cause, collectives
from ...causes import operations as causes
from ...job import AllReduce, ReduceScatter
from ...trace import WrongForm
from .evidence import OF_A_TENSOR, FailedRank, is_empty


def empty_array(of: FailedRank) -> Cause | None:
    return causes.EMPTY_ARRAY() if of.culprit.outcome == "invalid" and is_empty(of.made) else None


def zero_dimensions(of: FailedRank) -> Cause | None:
    made = of.made if of.culprit.outcome == "invalid" else None
    return causes.ZERO_DIMENSIONS() if isinstance(made, OF_A_TENSOR) and made.tensor.shape == () else None


def block_of_rank(of: FailedRank) -> Cause | None:
    """In a group, a rank's block is that of its number in the world."""
    made, rank, form = of.made, of.culprit.rank, _form(of)
    if not isinstance(made, ReduceScatter) or not made.group or rank not in made.group or not (form and form.shape):
        return None
    position = made.group.index(rank)
    return causes.BLOCK_OF_RANK(rank=rank, position=position) if position != rank else None


def result_of_another_call(of: FailedRank) -> Cause | None:
    """It has the dtype and shape of another all-reduce."""
    made, form = of.made, _form(of)
    if form is None or not isinstance(made, OF_A_TENSOR):
        return None
    for position, other in enumerate(of.job.operations):
        if not isinstance(other, AllReduce) or other.tensor.shape == made.tensor.shape:
            continue
        if (other.tensor.dtype, other.tensor.shape) == (form.dtype, form.shape):
            return collectives.RESULTS_MIXED_UP(operation=position)
    return None


def not_converted_back(of: FailedRank) -> Cause | None:
    """It was computed in another dtype, and returned in it."""
    form = _form(of)
    if form is None or form.dtype == form.right_dtype:
        return None
    return causes.NOT_CONVERTED_BACK(dtype=form.dtype, right_dtype=form.right_dtype)


def shape_lost(of: FailedRank) -> Cause | None:
    """It has the right number of elements."""
    form = _form(of)
    if form is None or form.shape == form.right_shape or math.prod(form.shape) != math.prod(form.right_shape):
        return None
    return causes.SHAPE_LOST(shape=form.shape, right_shape=form.right_shape)


def _form(of: FailedRank) -> WrongForm | None:
    """The dtype and shape of an invalid result of a collective."""
    invalid = of.culprit.outcome == "invalid" and isinstance(of.made, OF_A_TENSOR)
    return of.culprit.wrong_form if invalid else None
