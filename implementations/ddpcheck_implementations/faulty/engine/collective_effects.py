"""Effects that change a collective's call, argument or result.

`sending`, `giving` and `instead` make an effect of a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from .collectives import Call, CollectiveEffect, as_it_is


def sending(changed: Callable[[Call], Call]) -> CollectiveEffect:
    """Change the call."""
    return CollectiveEffect(sent=changed)


def giving(result: Callable[[Call, Array], Any]) -> CollectiveEffect:
    """Change the result."""
    return CollectiveEffect(got=result)


def instead(computed: Callable[[Call], Any]) -> CollectiveEffect:
    """Compute the result in another way."""
    return CollectiveEffect(instead=computed)


def sent_as(array: Callable[[Call], Array], got: Callable[[Call, Array], Any] = as_it_is) -> CollectiveEffect:
    """Change the array that is sent, and possibly the result."""
    return CollectiveEffect(sent=lambda call: call.changed(array=np.asarray(array(call))), got=got)


# ----------------------------------------------------------------------------------------- dtypes and their ranges


def through(*dtypes: str) -> CollectiveEffect:
    """Convert the argument to each of these dtypes in turn, and convert the result back."""

    def cast(call: Call) -> Array:
        array = call.array
        with np.errstate(all="ignore"):
            for each in dtypes:
                array = array.astype(each)
        return array

    return sent_as(cast, lambda call, result: _cast(result, call.array.dtype))


def result_through(dtype: str) -> CollectiveEffect:
    """Round the result to this dtype, and convert it back."""
    return CollectiveEffect(got=lambda call, result: _cast(_cast(result, dtype), result.dtype))


def _cast(array: Array, dtype: Any) -> Array:
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def nan_sent_as(value: float) -> CollectiveEffect:
    return sent_as(lambda call: np.where(np.isnan(call.array), call.array.dtype.type(value), call.array))


def raises(error: Callable[[str], Exception], message: str) -> CollectiveEffect:
    def failing(call: Call) -> Any:
        raise error(message)

    return CollectiveEffect(instead=failing)


def doing(something: Callable[[Call], Any]) -> CollectiveEffect:
    """Do something else first. The result is right."""

    def done(call: Call) -> Call:
        something(call)
        return call

    return CollectiveEffect(sent=done)


def where_it_fails(handled: Callable[[Call], Any]) -> CollectiveEffect:
    """Handle an error of the call: the function returns a result, or raises the error again."""

    def tried(call: Call) -> Any:
        try:
            return call.run()
        except RuntimeError:
            return handled(call)

    return CollectiveEffect(instead=tried)


@where_it_fails
def goes_on_with_its_own(call: Call) -> Array:
    return call.array.copy()


# -------------------------------------------------------------------------------------- elements that are not reduced


@giving
def own_value(call: Call, result: Array) -> Array:
    return np.array(call.array)


def tail_kept_local(count: int | Callable[[Call], int]) -> CollectiveEffect:
    """The last elements of the result are not reduced."""

    def kept(call: Call, result: Array) -> Array:
        last = count(call) if callable(count) else count
        if last:
            result.reshape(-1)[-last:] = call.array.reshape(-1)[-last:]
        return result

    return CollectiveEffect(got=kept)


def local_from(begin: Callable[[Call], int]) -> CollectiveEffect:
    """From this element on, the result is not reduced."""
    return tail_kept_local(lambda call: max(0, call.array.size - begin(call)))


def zero_from(begin: Callable[[Array], int]) -> CollectiveEffect:
    """From this element on, the result is zero."""

    def ended(call: Call, result: Array) -> Array:
        result = np.array(result)
        result.reshape(-1)[begin(result) :] = 0
        return result

    return CollectiveEffect(got=ended)


@giving
def zeros(call: Call, result: Array) -> Array:
    return np.zeros_like(result)


# --------------------------------------------------------------------------------------------- reductions and order


def reduced_by(op: str) -> CollectiveEffect:
    return CollectiveEffect(sent=lambda call: call.changed(op=op))


summed = reduced_by("sum")


def mean_divided_by(divisor: Callable[[Call], float]) -> CollectiveEffect:
    """Compute a mean as the sum, divided on this rank."""
    return CollectiveEffect(
        sent=lambda call: call.changed(op="sum"),
        got=lambda call, result: np.asarray(result / divisor(call), call.array.dtype),
    )


@giving
def divided_by_world_size(call: Call, result: Array) -> Array:
    """Divide a group's sum by the world size."""
    return np.asarray(result * (call.size / call.world)).astype(call.array.dtype)


def added_up(rows: Any, dtype: Any) -> Array:
    return np.asarray(sum(rows)).astype(dtype)


@instead
def summed_in_own_order(call: Call) -> Array:
    """Each rank adds the arrays from its own on, in another order than other ranks."""
    return added_up(np.roll(call.gathered(), -call.rank, axis=0), call.array.dtype)


@instead
def minimum_by_negation(call: Call) -> Array:
    return -call.changed(array=-call.array, op="max").run()


@giving
def gathered_in_own_order(call: Call, result: Array) -> Array:
    return np.roll(result, -call.place, axis=0)


@sending
def block_of_the_neighbour(call: Call) -> Call:
    return call.changed(array=np.roll(call.array, len(call.array) // call.size, axis=0))


# ------------------------------------------------------------------------------------------------- memory and time


def in_memory_order(array: Array) -> Array:
    return array.ravel(order="K").reshape(array.shape)


sent_in_memory_order = sent_as(lambda call: in_memory_order(call.array))


@instead
def skipped(call: Call) -> None:
    """Do nothing."""


@instead
def waited_for(call: Call) -> Array:
    """Block until the result is ready."""
    return call.run()
