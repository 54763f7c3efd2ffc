"""Records hooks that the script puts on parameters, where they change a gradient before the ranks' gradients are reduced.

A hook that multiplies all gradients by one number commutes with a mean over ranks. So the least and the largest factor are
noted, for the law to compare between ranks.
"""

from __future__ import annotations

from typing import Any

import torch

from ..recorded_process import Run
from .patching import replace
from .torch_random_draws import of as random_draws

_OWN = __name__.partition(".")[0] + "."
_MOST = 64
"""The most changed gradients that are noted."""


def install(run: Run) -> None:
    noted: set[tuple[int, str]] = set()

    def make_register(original: Any) -> Any:
        def register_hook(tensor: torch.Tensor, hook: Any) -> Any:
            parameter = tensor.is_leaf and tensor.requires_grad
            if run.mirrors or not parameter or str(getattr(hook, "__module__", "")).startswith(_OWN):
                return original(tensor, hook)
            line = run.line()

            def changes(gradient: torch.Tensor) -> Any:
                before = gradient.clone() if run.full and run.in_backward else None
                result = hook(gradient)
                if before is not None and (id(tensor), line) not in noted and len(noted) < _MOST:
                    with random_draws(run).unwatched():
                        after = gradient if result is None else result
                        if factors := _factors(before, after):
                            noted.add((id(tensor), line))
                            run.note(
                                "gradient_hook", step=run.step, shape=list(tensor.shape), factors=factors, line=line
                            )
                return result

            return original(tensor, changes)

        return register_hook

    replace(torch.Tensor, "register_hook", make_register)


def _factors(before: torch.Tensor, after: torch.Tensor) -> tuple[float, float] | None:
    """The least and largest factor by which numbers of a gradient changed; None if none did."""
    if before.is_sparse or before.shape != after.shape or torch.equal(before, after):
        return None
    factors = (after / before)[before != 0]
    return (float(factors.min()), float(factors.max())) if factors.numel() else None
