"""Step 4: communication during backward. Hooks fill buckets, and each full bucket starts its all-reduce.

Backward makes gradients from the last layer to the first, so buckets are filled in that order. All ranks must start the
same all-reduces in the same order, whatever the order of their gradients: a bucket starts after the previous bucket.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed import Work

from . import communication


class HookDDP(nn.Module):
    """All ranks start from rank 0's values; `finish` after each backward waits for the pending buckets."""

    def __init__(self, module: nn.Module, bucket_bytes: int = 1 << 20) -> None:
        super().__init__()
        self.module = module
        for tensor in (*module.parameters(), *module.buffers()):
            communication.broadcast(tensor.detach())
        self._learned = [parameter for parameter in reversed(list(module.parameters())) if parameter.requires_grad]
        self._buckets = list(_buckets(self._learned, bucket_bytes))
        self._bucket_of: dict[Tensor, int] = {
            parameter: index for index, bucket in enumerate(self._buckets) for parameter in bucket
        }
        self._synchronising = True
        self._begin()
        # A strong reference here would make a cycle of hook, engine and parameter, which would never be freed.
        engine = weakref.ref(self)

        def on_gradient(parameter: Tensor) -> None:
            alive = engine()
            if alive is not None:
                alive._on_gradient(parameter)

        for parameter in self._learned:
            parameter.register_post_accumulate_grad_hook(on_gradient)  # type: ignore[no-untyped-call]

    def forward(self, *args: object) -> Tensor:
        outputs: Tensor = self.module(*args)
        return outputs

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients on this rank only."""
        before, self._synchronising = self._synchronising, False
        try:
            yield
        finally:
            self._synchronising = before

    def finish(self) -> None:
        """Start the remaining buckets, wait for all, and replace gradients by their means."""
        while len(self._under_way) < len(self._buckets):
            self._start_next()
        # A gradient that no rank has stays None, so that the optimizer leaves its parameter alone.
        used = torch.tensor([parameter.grad is not None for parameter in self._learned], dtype=torch.uint8)
        communication.all_reduce(used, "max")
        used_anywhere = dict(zip(self._learned, used.tolist(), strict=True))
        for bucket, (work, flat) in zip(self._buckets, self._under_way, strict=True):
            work.wait()
            flat /= communication.world_size()
            for parameter, mean in zip(bucket, torch.split(flat, [p.numel() for p in bucket]), strict=True):
                if used_anywhere[parameter]:
                    parameter.grad = mean.view_as(parameter).clone()
        self._begin()

    def _begin(self) -> None:
        """Reset all buckets, so that the next backward waits for every gradient again."""
        self._missing = [len(bucket) for bucket in self._buckets]
        self._under_way: list[tuple[Work, Tensor]] = []

    def _on_gradient(self, parameter: Tensor) -> None:
        if not self._synchronising:
            return
        self._missing[self._bucket_of[parameter]] -= 1
        while len(self._under_way) < len(self._buckets) and self._missing[len(self._under_way)] == 0:
            self._start_next()

    def _start_next(self) -> None:
        bucket = self._buckets[len(self._under_way)]
        # A parameter that this rank did not use counts as zero: the other ranks wait for this rank's part.
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in bucket])
        self._under_way.append((communication.start_all_reduce(flat), flat))


def _buckets(parameters: list[nn.Parameter], size: int) -> Iterator[list[nn.Parameter]]:
    """Cut the parameters, in order, into runs of one dtype of at least `size` bytes; the last run may be smaller."""
    run: list[nn.Parameter] = []
    for parameter in parameters:
        if run and (parameter.dtype != run[0].dtype or sum(p.nbytes for p in run) >= size):
            yield run
            run = []
        run.append(parameter)
    if run:
        yield run
