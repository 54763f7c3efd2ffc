"""Records where a script puts its own features among gathered ones: it replaces one of them, so that its gradient is kept."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from ...pytorch.pending_collectives import place_of
from ..recorded_process import Run

JOINING = frozenset({"cat", "stack"})
_KEPT = 4
_last: dict[int, deque[list[torch.Tensor]]] = {}
"""The tensors of the last gathers, by the id of the run."""


def gathered(run: Run, name: str, args: tuple[Any, ...]) -> None:
    """Remember what all_gather has filled."""
    if name == "all_gather" and run.full and not run.mirrors and args and isinstance(args[0], list):
        _last.setdefault(id(run), deque(maxlen=_KEPT)).append(list(args[0]))


def joined(run: Run, parts: Any) -> None:
    """Note the place of the rank's own tensor, if all others are the gathered ones, each in its place."""
    if not run.full or run.mirrors or not isinstance(parts, (list, tuple)) or len(parts) < 2:
        return
    for there in _last.get(id(run), ()):
        if len(parts) != len(there):
            continue
        replaced = [place for place, (part, one) in enumerate(zip(parts, there, strict=True)) if not _same(part, one)]
        if len(replaced) == 1 and parts[replaced[0]].requires_grad:
            run.note("own_place", step=run.step, place=replaced[0], line=run.line())
            return


def _same(part: torch.Tensor, other: torch.Tensor) -> bool:
    return part is other or ((place := place_of(part)) != 0 and place == place_of(other))
