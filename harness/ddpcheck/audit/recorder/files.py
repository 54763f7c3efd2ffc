"""Records checkpoints that the script writes and reads, and whether names in them have the wrapper's prefix."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from ..recorded_process import Run
from .patching import replace


def install(run: Run) -> None:
    def make_save(original: Any) -> Any:
        def save(value: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            path = os.path.abspath(target) if isinstance(target, (str, os.PathLike)) else ""  # noqa: PTH100
            run.note("save", path=path, prefix=_has_prefix(value), step=run.step, line=run.line())
            return original(value, target, *args, **kwargs)

        return save

    def make_load(original: Any) -> Any:
        def load(source: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(source, (str, os.PathLike)):
                run.note("load", path=os.path.abspath(source), step=run.step, line=run.line())  # noqa: PTH100
            return original(source, *args, **kwargs)

        return load

    def make_load_state(original: Any) -> Any:
        def load_state_dict(self: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, state, *args, **kwargs)
            missing = len(getattr(result, "missing_keys", ()))
            prefix = isinstance(state, Mapping) and _has_prefix(state)
            run.note("loaded", missing=missing, names=len(state), prefix=prefix, step=run.step, line=run.line())
            return result

        return load_state_dict

    replace(torch.nn.Module, "load_state_dict", make_load_state)
    replace(torch, "save", make_save)
    replace(torch, "load", make_load)


def _has_prefix(value: Any, depth: int = 0) -> bool:
    """Whether names of parameters begin with `module.`, as those of a DDP wrapper do."""
    if not isinstance(value, Mapping) or depth > 2:
        return False
    names = [name for name in value if isinstance(name, str)]
    tensors = [name for name in names if isinstance(value[name], torch.Tensor)]
    if tensors and all(name.startswith("module.") for name in tensors):
        return True
    return any(_has_prefix(value[name], depth + 1) for name in names)
