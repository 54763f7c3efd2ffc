"""The seam of torch modules: a module's wrapper, or a communication hook of DistributedDataParallel.

A wrapper or hook is named as module:name, with a module of in_torch/code/ or of torch, and imported in the ranks only:
torch is optional.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from ddpcheck.contract import Capabilities
from ddpcheck.contract.adapter import Adapter
from ddpcheck.job import OptimizerSpec
from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

from ..registry import Registering, SeenIn, invented
from .circumstances import Circumstance


def _synchronise(wrapped: Any) -> None:
    getattr(wrapped, "synchronise", lambda: None)()


def _no_sync(wrapped: Any) -> Any:
    return wrapped.no_sync() if hasattr(wrapped, "no_sync") else nullcontext()


@dataclass(frozen=True)
class ModuleEffect:
    """wraps: wraps a module. optimizer: makes an optimizer from the wrapper and settings; None for torch's. clip: clips the
    gradients of a wrapper; None for torch's. promised: Capabilities; a fault may change some.
    """

    wraps: Callable[[Any], Any]
    optimizer: Callable[[Any, OptimizerSpec], Any] | None = None
    clip: Callable[[Any, float], Any] | None = None
    promised: Capabilities = TORCH_PROMISES

    def register(
        self,
        name: str,
        *caught_by: str,
        cause: str = "",
        seen_in: SeenIn = invented,
        world_size: int = 2,
        **promises: Any,
    ) -> Callable[[Any], Adapter]:
        """A decorator that registers a wrapper. promises: Capabilities other than `promised`."""

        def make(wrap: Any) -> Adapter:
            wrap.__dict__["between_processes"] = True
            made = torch_adapter(
                name,
                wrap,
                capabilities=self.promised.but(**promises),
                after_backward=_synchronise,
                no_sync=_no_sync,
                optimizer=self.optimizer,
                clip=self.clip,
            )
            registering: Registering[Any] = Registering(lambda wrap: made.connect, made.capabilities)
            return registering(
                name,
                *caught_by,
                cause=cause,
                seen_in=seen_in,
                world_size=world_size,
                launcher=made.launcher,
                requires=made.requires,
            )(wrap)

        return make

    def implemented(self, where: Circumstance) -> Any:
        def wrap(module: Any) -> Any:
            return self.wraps(module)

        return wrap


_CODE = f"{__name__.rpartition('.engine.')[0]}.in_torch.code"


def imported(name: str) -> Any:
    place, _, attribute = name.partition(":")
    return getattr(importlib.import_module(place if place.startswith("torch.") else f"{_CODE}.{place}"), attribute)


def wrapped_by(name: str) -> ModuleEffect:
    return ModuleEffect(lambda module: imported(name)(module))


def _inner_module(module: Any) -> Any:
    ddp(module)
    return module


inner_module = ModuleEffect(_inner_module)


def hook(name: str) -> ModuleEffect:
    """DistributedDataParallel with this communication hook."""
    return ModuleEffect(lambda module: ddp(module, imported(name)))


def optimizer(name: str) -> ModuleEffect:
    """DistributedDataParallel with this optimizer, which takes lr, momentum and weight decay."""

    def made(wrapped: Any, settings: OptimizerSpec) -> Any:
        return imported(name)(wrapped.parameters(), settings.lr, settings.momentum, weight_decay=settings.weight_decay)

    return ModuleEffect(ddp, made)


def ddp(module: Any, hook: Any = None) -> Any:
    """DistributedDataParallel in small buckets, with a communication hook if one is given."""
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(module, bucket_cap_mb=1e-4)
    if hook is not None:
        # DDP compares a hook's annotations with classes; here they would be text
        wrapped.register_comm_hook(None, lambda state, bucket: hook(state, bucket))
    return wrapped
