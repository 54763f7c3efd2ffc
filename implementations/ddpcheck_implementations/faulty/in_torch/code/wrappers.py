"""Hand-written wrappers in torch, each with one mistake; faulty/in_torch/wrappers.py registers them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.utils.checkpoint import checkpoint

from ....torch_steps import communication
from ....torch_steps.hooks import HookDDP
from ....torch_steps.naive import NaiveDDP


class CopiedBackLate(NaiveDDP):
    """Gradients are reduced in copies, which the next forward copies back, after the step."""

    reduced: tuple[tuple[nn.Parameter, Tensor], ...] = ()

    def forward(self, *args: object) -> Tensor:
        for parameter, mean in self.reduced:
            if parameter.grad is not None:
                parameter.grad.copy_(mean)
        self.reduced = ()
        return super().forward(*args)

    def synchronise(self) -> None:
        own = {p: p.grad.clone() for p in self.module.parameters() if p.grad is not None}
        super().synchronise()
        self.reduced = tuple((p, p.grad.clone()) for p in self.module.parameters() if p.grad is not None)
        for parameter, gradient in own.items():
            parameter.grad = gradient


class Hooked(NaiveDDP):
    """Correct: each gradient is reduced as soon as backward has added to it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.synchronising = True
        for parameter in module.parameters():
            if parameter.requires_grad:
                self.hook(parameter)

    def hook(self, parameter: nn.Parameter) -> None:
        parameter.register_post_accumulate_grad_hook(self.after)  # type: ignore[no-untyped-call]

    def after(self, parameter: Tensor) -> None:
        if self.synchronising and parameter.grad is not None:
            communication.all_reduce_mean(parameter.grad)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self.synchronising = self.synchronising, False
        try:
            yield
        finally:
            self.synchronising = before

    def synchronise(self) -> None:
        """Do nothing: the hooks have already reduced."""


class ReducesWhatArrives(Hooked):
    """The hook reduces the new gradient only, without gradients accumulated inside no_sync."""

    def hook(self, parameter: nn.Parameter) -> None:
        parameter.register_hook(self.arriving)  # type: ignore[no-untyped-call]

    def arriving(self, gradient: Tensor) -> Tensor:
        mean = gradient.clone()
        if self.synchronising:
            communication.all_reduce_mean(mean)
        return mean


class BroadcastsTheStateDict(NaiveDDP):
    """Construction sends what the state dict holds; a buffer with persistent=False keeps each rank's own value."""

    def __init__(self, module: nn.Module) -> None:
        held = {name: buffer.clone() for name, buffer in module.named_buffers()}
        super().__init__(module)
        saved = module.state_dict()
        for name, buffer in module.named_buffers():
            if name not in saved:
                buffer.copy_(held[name])


class HooksReplacedOnes(Hooked):
    """Biases are replaced after hooks are attached to them."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        for layer in module.modules():
            bias = layer._parameters.get("bias")
            if bias is not None:
                layer._parameters["bias"] = nn.Parameter(bias.detach().clone(), bias.requires_grad)


class ComputedAnew(NaiveDDP):
    """Backward recomputes activations, which updates batch norm's running statistics again."""

    def forward(self, *args: object) -> Tensor:
        outputs: Tensor = checkpoint(self.module, *args, use_reentrant=False)
        return outputs


class BufferNotCleared(NaiveDDP):
    """Send buffers are reused without clearing, so a rank without a gradient sends old content."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.kept = {p: torch.zeros_like(p) for p in module.parameters() if p.requires_grad}

    def synchronise(self) -> None:
        for parameter, buffer in self.kept.items():
            if parameter.grad is not None:
                buffer.copy_(parameter.grad)
            communication.all_reduce_mean(buffer)
            parameter.grad = buffer.clone()


class PlaceByPlace(NaiveDDP):
    """Correct: each use of a parameter is averaged, so tied parameters twice, which changes nothing."""

    def synchronise(self) -> None:
        places = [p for _, p in self.module.named_parameters(remove_duplicate=False) if p.requires_grad]
        reduced = [self.sent(place, parameter, places) for place, parameter in enumerate(places)]
        for parameter, gradient in zip(places[::-1], reduced[::-1], strict=True):
            parameter.grad = gradient

    def sent(self, place: int, parameter: nn.Parameter, places: list[nn.Parameter]) -> Tensor:
        """The averaged gradient of the parameter at this place in the list."""
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        communication.all_reduce_mean(gradient)
        return gradient


class OnePlaceOnly(PlaceByPlace):
    """Hooks are stored by parameter, so the first use of a tied parameter has none and counts as unused."""

    def sent(self, place: int, parameter: nn.Parameter, places: list[nn.Parameter]) -> Tensor:
        gradient = super().sent(place, parameter, places)
        later = any(other is parameter for other in places[place + 1 :])
        return torch.zeros_like(gradient) if later else gradient


class FrozenCached(NaiveDDP):
    """Frozen parameters are copied once, and forward uses the copies."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.kept = {name: p.detach().clone() for name, p in module.named_parameters() if not p.requires_grad}

    def forward(self, *args: object) -> Tensor:
        outputs: Tensor = torch.func.functional_call(self.module, self.kept, args)
        return outputs


class LastBucketNotAwaited(HookDDP):
    """The handle of the last bucket, which is seldom full, is dropped; its gradients are read while they are reduced."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module, bucket_bytes=1 << 12)

    def synchronise(self) -> None:
        while len(self._under_way) < len(self._buckets):
            self._start_next()
        for bucket, (work, flat) in zip(self._buckets, self._under_way, strict=True):
            if bucket is not self._buckets[-1]:
                work.wait()
            mean = flat / communication.world_size()
            for parameter, part in zip(bucket, torch.split(mean, [p.numel() for p in bucket]), strict=True):
                parameter.grad = part.view_as(parameter).clone()
        self._begin()


class Overlapping(HookDDP):
    """Correct: buckets of 4 KiB, several of which are under way at once."""

    def __init__(self, module: nn.Module) -> None:
        self.whole = torch.empty(sum(_room([parameter]) for parameter in module.parameters()), dtype=torch.uint8)
        super().__init__(module, bucket_bytes=1 << 12)

    def synchronise(self) -> None:
        self.finish()

    def _start_next(self) -> None:
        bucket = self._buckets[len(self._under_way)]
        flat = self.room(bucket)
        parts = torch.split(flat, [parameter.numel() for parameter in bucket])
        for parameter, part in zip(bucket, parts, strict=True):
            part.copy_(torch.zeros_like(part) if parameter.grad is None else parameter.grad.reshape(-1))
        self._under_way.append((communication.start_all_reduce(flat), flat))

    def room(self, bucket: list[nn.Parameter]) -> Tensor:
        """Memory for the next bucket, this one: its own slice of one buffer."""
        begin = sum(_room(each) for each in self._buckets[: len(self._under_way)])
        size = sum(parameter.nbytes for parameter in bucket)
        return self.whole[begin : begin + size].view(bucket[0].dtype)


def _room(bucket: list[nn.Parameter]) -> int:
    """The bytes of a bucket, and those after which the next may begin with a number of any dtype."""
    return -(-sum(parameter.nbytes for parameter in bucket) // _LONGEST) * _LONGEST


_LONGEST = 8
"""Bytes of the longest dtype."""


class OneBufferForAllBuckets(Overlapping):
    """Each bucket is packed into the same memory, while the one before is still reduced there."""

    def room(self, bucket: list[nn.Parameter]) -> Tensor:
        return self.whole[: sum(parameter.nbytes for parameter in bucket)].view(bucket[0].dtype)


class DividedBeforeTheWait(Overlapping):
    """Sums are divided in place before the wait, which is right if a small all-reduce has already ended."""

    def synchronise(self) -> None:
        while len(self._under_way) < len(self._buckets):
            self._start_next()
        for _, flat in self._under_way:
            flat /= communication.world_size()
        for bucket, (work, mean) in zip(self._buckets, self._under_way, strict=True):
            work.wait()
            for parameter, part in zip(bucket, torch.split(mean, [p.numel() for p in bucket]), strict=True):
                parameter.grad = part.view_as(parameter).clone()
        self._begin()


class ReadyInsideNoSync(HookDDP):
    """Gradients inside no_sync count as ready, so the next backward starts the bucket with its first gradient."""

    def _begin(self) -> None:
        super()._begin()
        self.ready: set[Tensor] = set()

    def _on_gradient(self, parameter: Tensor) -> None:
        self.ready.add(parameter)
        while self._synchronising and len(self._under_way) < len(self._buckets):
            if not self.ready.issuperset(self._buckets[len(self._under_way)]):
                return
            self._start_next()

    def synchronise(self) -> None:
        self.finish()


def summed(_: object, bucket: Any) -> Future[Any]:
    """A communication hook of DDP that does not divide."""
    return _all_reduced(bucket.buffer())


def divided_twice(_: object, bucket: Any) -> Future[Any]:
    """A communication hook of DDP that divides before and after."""
    size = dist.get_world_size()
    return _all_reduced(bucket.buffer().div_(size)).then(lambda future: future.value().div_(size))


def last_bucket_only(_: object, bucket: Any) -> Future[Any]:
    """A communication hook of DDP that reduces the last bucket only."""
    if bucket.is_last():
        return _all_reduced(bucket.buffer().div_(dist.get_world_size()))
    future: Future[Any] = Future()
    future.set_result(bucket.buffer())
    return future


def _all_reduced(buffer: Tensor) -> Future[Any]:
    future: Future[Any] = communication.start_all_reduce(buffer).get_future()
    return future.then(lambda done: done.value()[0])
