"""Records DistributedDataParallel: the wrapped module, its options, its forward passes and its uses of no_sync()."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ..recorded_process import Run
from . import gradients, script_objects
from .patching import replace
from .tensors import digest
from .wrapped_parameters import cover

_OPTIONS = ("broadcast_buffers", "find_unused_parameters", "gradient_as_bucket_view", "static_graph")


def install(run: Run) -> None:
    wrappers = script_objects.of(run).wrappers

    def make_init(original: Any) -> Any:
        def wrap(self: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
            before = {name: digest(each) for name, each in module.named_parameters()}
            original(self, module, *args, **kwargs)
            wrappers.append(self)
            cover(self)
            gradients.of(run).watch([each for each in module.parameters() if each.requires_grad])
            run.note(
                "wrapped",
                wrapper=len(wrappers) - 1,
                before=before,
                needs=[name for name, each in module.named_parameters() if each.requires_grad],
                line=run.line(),
                **{name: bool(kwargs.get(name, name == "broadcast_buffers")) for name in _OPTIONS},
            )

        return wrap

    def make_forward(original: Any) -> Any:
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            run.note(
                "forward",
                wrapper=next((n for n, each in enumerate(wrappers) if each is self), -1),
                step=run.step,
                number=run.backwards,
                sync=bool(self.require_backward_grad_sync),
                grad=torch.is_grad_enabled(),
                training=bool(self.training),
                buffers=bool(self.will_sync_module_buffers()),
                line=run.line(),
                callers=run.callers(),
            )
            return original(self, *args, **kwargs)

        return forward

    def make_no_sync(original: Any) -> Any:
        @contextlib.contextmanager
        def no_sync(self: Any) -> Iterator[None]:
            run.note("no_sync", step=run.step, number=run.backwards, line=run.line())
            with original(self):
                yield

        return no_sync

    replace(DistributedDataParallel, "__init__", make_init)
    replace(DistributedDataParallel, "forward", make_forward)
    replace(DistributedDataParallel, "no_sync", make_no_sync)

    def make_hook(original: Any) -> Any:
        def register_comm_hook(self: Any, state: Any, hook: Any) -> Any:
            run.note("comm_hook", name=getattr(hook, "__qualname__", str(hook)), line=run.line())

            @functools.wraps(hook)
            def drawing_for_no_sample(own: Any, bucket: Any) -> Any:
                run.loading += 1
                try:
                    return hook(own, bucket)
                finally:
                    run.loading -= 1

            return original(self, state, drawing_for_no_sample)

        return register_comm_hook

    replace(DistributedDataParallel, "register_comm_hook", make_hook)
