"""Validation of an implementation's results: types, shapes, dtypes and names as the contract states them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

import numpy as np

from ..models.spec import ModelSpec
from ..seeded_values import Array
from ..trace import WrongForm

T = TypeVar("T")


class ContractViolation(Exception):
    """The implementation returned a result that the contract does not allow, or does not offer what the Job needs. `form`:
    set if an array's form is wrong. `missing`: the name of the method or facet that is not offered.
    """

    def __init__(self, problem: str, form: WrongForm | None = None, missing: str = "") -> None:
        super().__init__(problem)
        self.form = form
        self.missing = missing


def offered(facet: T | None, name: str) -> T:
    """Return the facet. ContractViolation if the implementation does not offer it."""
    if facet is None:
        raise ContractViolation(
            f"the Job needs Facets.{name}, which this implementation does not offer", missing=name.rpartition(".")[2]
        )
    return facet


def offered_method(owner: Any, method: str) -> Any:
    """Return the owner's method. ContractViolation if it has none."""
    found = getattr(owner, method, None)
    if not callable(found):
        kind = type(owner).__name__
        raise ContractViolation(f"the Job needs {method}(), and {kind} has no such method", missing=method)
    return found


def checked_array(got: Any, shape: tuple[int, ...], dtype: Any, what: str) -> Array:
    """Return `got` if it is an array of this shape and dtype, else ContractViolation. what: the method that returned it."""
    if not isinstance(got, (np.ndarray, np.generic)):
        raise ContractViolation(f"{what} must return a NumPy array, got {type(got).__name__}")
    if got.shape != shape or got.dtype != dtype:
        form = WrongForm(str(got.dtype), got.shape, str(np.dtype(dtype)), shape)
        raise ContractViolation(
            f"{what} returned {form.dtype}{list(form.shape)}, but must return {form.right_dtype}{list(form.right_shape)}",
            form,
        )
    return np.asarray(got)


def checked_indices(got: Iterable[Any], length: int, what: str) -> Array:
    """Return indices as int64 (n,). ContractViolation if one is not an integer in [0, length)."""
    indices = list(got)
    strange = [i for i in indices if not isinstance(i, (int, np.integer)) or not 0 <= i < length]
    if strange:
        raise ContractViolation(f"{what} returned {strange[:5]!r}, which are not indices below {length}")
    return np.array(indices, np.int64)


def checked_number(got: Any, what: str) -> float:
    try:
        return float(got)
    except (TypeError, ValueError):
        raise ContractViolation(f"{what} must return a number, got {got!r}") from None


class Declared:
    """The declared tensors of a model: names by role, shapes and dtypes."""

    def __init__(self, model: ModelSpec) -> None:
        tensors = model.tensors()
        self._forms = {tensor.name: (tensor.shape, tensor.dtype) for tensor in tensors}
        self.learned: frozenset[str] = frozenset(tensor.name for tensor in tensors if tensor.role == "learned")
        self.buffers: frozenset[str] = frozenset(tensor.name for tensor in tensors if tensor.role == "buffer")
        self.parameters: AbstractSet[str] = self._forms.keys() - self.buffers

    def copied(self, got: Any, what: str, names: AbstractSet[str]) -> dict[str, Array]:
        """Copy arrays that must have these names, and shapes and dtypes as declared. what: the method that returned them."""
        return {name: np.array(got[name]) for name in self._checked(got, what, names, optional=False)}

    def copied_optional(self, got: Any, what: str, names: AbstractSet[str]) -> dict[str, Array | None]:
        """Copy arrays as copied() does; each may be None."""
        checked = self._checked(got, what, names, optional=True)
        return {name: None if got[name] is None else np.array(got[name]) for name in checked}

    def _checked(self, got: Any, what: str, names: AbstractSet[str], *, optional: bool) -> Mapping[str, Any]:
        if not isinstance(got, Mapping):
            raise ContractViolation(f"{what} must return a mapping of names to arrays, got {type(got).__name__}")
        problems = [f"{name!r} is missing" for name in names if name not in got]
        other = "is not a name of this model", "is frozen, or a buffer, and must be left out"
        problems += [f"{name!r} {other[name in self._forms]}" for name in got if name not in names]
        for name in names & got.keys():
            array = got[name]
            if array is None and optional:
                continue
            if not isinstance(array, (np.ndarray, np.generic)):
                problems.append(f"{name!r} is {type(array).__name__}, not an array")
                continue
            shape, dtype = self._forms[name]
            if array.shape != shape or array.dtype != dtype:
                grown = (
                    "; np.ascontiguousarray and np.asfortranarray make a 0-d array 1-d"
                    if (array.shape, shape) == ((1,), ())
                    else ""
                )
                problems.append(
                    f"{name!r} is {array.dtype}{list(array.shape)}, but was declared {dtype}{list(shape)}{grown}"
                )
        if problems:
            raise ContractViolation(f"{what}: " + "; ".join(problems))
        return got
