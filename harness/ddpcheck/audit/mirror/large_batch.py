"""Puts the ranks' values together into those of the whole batch."""

from __future__ import annotations

from typing import Any

import torch

from ..recorder.tensors import children, is_container, rebuilt


class Misfit(Exception):
    """The ranks' values do not fit together; the message says how."""


def put_together(values: list[Any], samples: tuple[int, ...], shift: int = 0) -> Any:
    """Nested batches of several ranks as one. Misfit if shapes or structures differ in more than the number of samples.

    samples: the number of samples in each rank's batch. Tensors are joined along the dimension of that size. shift: the
    number of samples by which the joined tensor is rolled.
    """
    first = values[0]
    if isinstance(first, torch.Tensor):
        return tensors_together(values, samples, shift)
    if isinstance(first, list) and all(not is_container(e) and not isinstance(e, torch.Tensor) for e in first):
        if any(len(each) != size for each, size in zip(values, samples, strict=True)):
            return _common(values)
        return rolled([each for value in values for each in value], shift)
    if is_container(first):
        if any(type(each) is not type(first) or len(children(each)) != len(children(first)) for each in values):
            raise Misfit("the ranks' batches have different structures")
        if isinstance(first, list) and len(first) == samples[0] and len({len(each) for each in values}) > 1:
            return rolled([each for value in values for each in value], shift)
        parts = zip(*map(children, values), strict=True)
        return rebuilt(first, [put_together(list(each), samples, shift) for each in parts])
    return _common(values)


def rolled(values: list[Any], shift: int) -> list[Any]:
    """The last `shift` values first."""
    return values[-shift:] + values[:-shift] if shift and values else values


def tensors_together(values: list[torch.Tensor], samples: tuple[int, ...], shift: int = 0) -> torch.Tensor:
    """One tensor of all samples."""
    first = values[0]
    if first.dim() == 0:
        return _common(values)  # type: ignore[no-any-return]
    place = _dimension_of_samples(values, samples)
    if place is None:
        return _common(values)  # type: ignore[no-any-return]
    rest = {tuple(each.shape[:place]) + tuple(each.shape[place + 1 :]) for each in values}
    if len(rest) > 1:
        shapes = ", ".join(str(tuple(each.shape)) for each in values)
        raise Misfit(
            f"the ranks' batches have tensors of shapes {shapes}: they differ in more than the number of samples"
        )
    return joined(values, place, sum(samples), shift)


def joined(values: list[torch.Tensor], place: int, samples: int, shift: int) -> torch.Tensor:
    """The values concatenated, and rolled by `shift` samples. Misfit if the entries cannot be divided evenly among
    samples.
    """
    made = torch.cat(values, place)
    if not shift:
        return made
    if not samples or made.shape[place] % samples:
        raise Misfit(f"{made.shape[place]} entries cannot be divided evenly among {samples} samples")
    return torch.roll(made, shift * (made.shape[place] // samples), place)


def _dimension_of_samples(values: list[torch.Tensor], samples: tuple[int, ...]) -> int | None:
    """The dimension in which every rank's tensor has one entry per sample, or a multiple; None if there is none."""
    if len({each.dim() for each in values}) > 1:
        raise Misfit("the ranks' batches have tensors with different numbers of dimensions")
    for place in range(values[0].dim()):
        if all(each.shape[place] == size for each, size in zip(values, samples, strict=True)):
            return place
    if all(size and each.shape[0] % size == 0 for each, size in zip(values, samples, strict=True)):
        multiples = {each.shape[0] // size for each, size in zip(values, samples, strict=True)}
        if len(multiples) == 1 and multiples != {0}:
            return 0
    return None


def _common(values: list[Any]) -> Any:
    """The value that all ranks share."""
    first = values[0]
    for each in values[1:]:
        same = torch.equal(each, first) if isinstance(first, torch.Tensor) else _equal(each, first)
        if not same:
            raise Misfit("the ranks' batches hold different values that do not belong to samples")
    return first


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except (TypeError, ValueError, RuntimeError):
        return type(a) is type(b)
