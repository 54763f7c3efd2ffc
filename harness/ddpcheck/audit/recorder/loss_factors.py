"""Finds the last factor of a loss, at the root of its graph, as in (loss / accumulate).backward()."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

_DEPTH = 6
MEAN = 1
"""torch's number of reduction="mean"."""
_SINK = "_DDPSink"
"""DistributedDataParallel's node between a module's outputs and their graph; its inputs are its outputs, in order."""


def described(loss: torch.Tensor, loss_scale: float = 1.0) -> dict[str, Any]:
    """loss: its value. scale: the product of the plain numbers at the root. root: the operation below these. mean: whether
    that is a mean over elements.

    loss_scale: the factor of a gradient scaler, which is removed from loss and scale.
    """
    node: Any = loss.grad_fn
    place = loss.output_nr
    scale = 1.0
    for _ in range(_DEPTH):
        if node is None:
            break
        if node.name().startswith(_SINK):
            node, place = node.next_functions[place]
            continue
        factor = _factor(node)
        if factor is None:
            break
        scale *= factor
        edges: Any = node.next_functions
        node, place = next((edge for edge in edges if edge[0] is not None), (None, 0))
    root = node.name().removesuffix("0").removesuffix("Backward") if node is not None else ""
    value = float(loss.detach()) / loss_scale if loss.numel() == 1 else None
    return {"loss": value, "scale": scale / loss_scale, "root": root, "mean": _is_mean(node, root)}


def _is_mean(node: Any, root: str) -> bool:
    return root.startswith("Mean") or getattr(node, "_saved_reduction", None) == MEAN


def _factor(node: Any) -> float | None:
    """The number by which a node multiplies or divides; None for other operations."""
    if node is None:
        return None
    name = node.name()
    if not name.startswith(("MulBackward", "DivBackward")):
        return None
    parents = [each for each, _ in node.next_functions if each is not None]
    if len(parents) != 1:
        return None
    for attribute in ("_saved_other", "_saved_self"):
        value = getattr(node, attribute, None)
        if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.requires_grad:
            with _disable_current_modes():  # a plain number in the graph is a tensor that modes cannot handle
                number = float(value)
            if name.startswith("MulBackward"):
                return number
            return 1.0 / number if attribute == "_saved_other" and number else None
    return None
