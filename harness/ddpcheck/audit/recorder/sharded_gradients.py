"""Shows the recorder the gradients of parameters that fully_shard, or FSDP1, splits over the ranks."""

from __future__ import annotations

from typing import Any

from ..recorded_process import Run
from . import gradients
from .patching import replace
from .tensors import plain

_installed: set[tuple[int, str]] = set()


def watch_parts(run: Run) -> None:
    """Watch local gradients of parameters of fully_shard. They arrive at the whole parameter, which exists for one
    forward and backward.
    """
    if not _is_first(run, "parts"):
        return
    from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

    def make(original: Any) -> Any:
        def init_unsharded_param(self: Any) -> None:
            new = not hasattr(self, "_unsharded_param")
            original(self)
            if new and self._unsharded_param.requires_grad:
                seen = gradients.of(run).seen(self.sharded_param, lambda: _is_empty(self))
                self._unsharded_param.register_hook(seen)

        return init_unsharded_param

    replace(FSDPParam, "init_unsharded_param", make)


def watch_clipping(run: Run) -> None:
    """See the gradients before FullyShardedDataParallel clips them, as for the functions of torch.nn.utils."""
    if not _is_first(run, "clipping"):
        return
    from torch.distributed.fsdp import FullyShardedDataParallel

    def make(original: Any) -> Any:
        def clip_grad_norm_(self: Any, max_norm: Any, *args: Any, **kwargs: Any) -> Any:
            clip = gradients.of(run).clip(lambda several, *rest, **named: original(self, *rest, **named), "norm")
            return clip(list(self.parameters()), max_norm, *args, **kwargs)

        return clip_grad_norm_

    replace(FullyShardedDataParallel, "clip_grad_norm_", make)


def _is_first(run: Run, what: str) -> bool:
    first = (id(run), what) not in _installed
    _installed.add((id(run), what))
    return first


def _is_empty(split: Any) -> bool:
    """Whether no gradient has been accumulated for a parameter of fully_shard."""
    if split.unsharded_accumulated_grad is not None or split._unsharded_param.grad is not None:
        return False
    gradient = split.sharded_param.grad
    if gradient is None:
        return True
    own = plain(gradient)
    return own.numel() > 0 and not bool(own.any())
