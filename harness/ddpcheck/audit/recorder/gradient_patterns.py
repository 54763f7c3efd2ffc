"""Finds regular gradients: elements of one magnitude, or equal rows where the parameter's rows are equal, too."""

from __future__ import annotations

import torch

from .tensors import plain

_TELLING = 8
"""A gradient with fewer elements may be the same in every step by chance, or by a loss such as the absolute error."""
_ALIKE = 1e-4
"""Rows are equal if their distance is at most this part of their norm: products of equal rows differ in last places."""

_FAR = 100 * _ALIKE
_HEAD = 64


def pattern(gradient: torch.Tensor, parameter: torch.Tensor, *, layer: bool) -> str:
    """few, even (one magnitude, or zero), rows (equal, as the parameter's are), or empty. layer: rows belong to
    units.
    """
    values = plain(gradient)
    if values.numel() < _TELLING:
        return "few"
    if _even(values):
        return "rows" if layer and bool(values.any()) and _alike(values) and _alike(parameter) else "even"
    return "rows" if layer and _alike(values) and _alike(parameter) else ""


def _even(values: torch.Tensor) -> bool:
    """Whether all elements have one magnitude. The first elements are tested first, since they usually differ."""
    flat = values.reshape(-1)
    return all(bool((part.abs() == flat[0].abs()).all()) for part in (flat[:_HEAD], flat))


def _alike(tensor: torch.Tensor) -> bool:
    rows = plain(tensor)
    if rows.dim() < 2 or rows.shape[0] < 2:
        return False
    rows = rows.reshape(rows.shape[0], -1).float()
    if bool((rows[1] - rows[0]).norm() > _FAR * rows[:2].norm()):  # two rows are tested first, which costs less
        return False
    return bool((rows - rows[0]).norm() <= _ALIKE * rows.norm())
