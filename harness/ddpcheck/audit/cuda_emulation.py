"""Runs a script for CUDA and NCCL on the CPU: devices named cuda, or a number, are the CPU; questions about GPUs are
answered.

`torch.cuda.is_available()` returns True, so that the script takes its GPU branch. Mixed precision runs as the CPU's
autocast in bfloat16; streams, events and caches do nothing. The script's own kernels cannot run.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_CPU = torch.device("cpu")


def _mapped(value: Any) -> Any:
    """The CPU for cuda, cuda:1 and torch.device("cuda")."""
    if isinstance(value, torch.device):
        return _CPU if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


class _OnCpu(TorchFunctionMode):
    """Maps devices in the arguments of every function of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:  # the script may ask for its type; tensors on it are mapped
            return func(*args, **(kwargs or {}))
        kwargs = {name: _mapped(value) for name, value in (kwargs or {}).items()}
        if isinstance(kwargs.get("device"), int):
            kwargs["device"] = _CPU
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        name = getattr(func, "__name__", "")
        if name == "cuda":
            return args[0]
        if name == "pin_memory":
            return args[0]
        if name == "is_pinned":
            return False
        if name == "to" and len(args) > 1 and isinstance(args[1], int) and not isinstance(args[1], bool):
            args = (args[0], _CPU, *args[2:])
        return func(*(_mapped(each) for each in args), **kwargs)


def install(count: int) -> None:
    """From now on this process has `count` GPUs, each of which is the CPU."""
    _answer_queries(count)
    _replace_modules_methods()
    _replace_mixed_precision()
    _replace_generators()
    _replace_ddp()
    _replace_sync_batch_norm()
    mode: Any = _OnCpu()
    mode.__enter__()  # for good: the process belongs to the script


def _answer_queries(count: int) -> None:
    current = [0]

    def set_device(device: Any) -> None:
        current[0] = device if isinstance(device, int) else int(str(device).partition(":")[2] or 0)

    properties = types.SimpleNamespace(
        name="the CPU, as ddpcheck audit --no-gpu has it",
        total_memory=16 << 30,
        major=8,
        minor=0,
        multi_processor_count=1,
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: count,
        "current_device": lambda: current[0],
        "set_device": set_device,
        "get_device_name": lambda device=None: properties.name,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (8, 0),
        "is_bf16_supported": lambda *args, **kwargs: False,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "reset_peak_memory_stats": lambda device=None: None,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "memory_reserved": lambda device=None: 0,
        "max_memory_reserved": lambda device=None: 0,
        "mem_get_info": lambda device=None: (16 << 30, 16 << 30),
        "memory_summary": lambda *args, **kwargs: "",
        "current_stream": lambda device=None: _Stream(),
        "default_stream": lambda device=None: _Stream(),
        "is_current_stream_capturing": lambda: False,
        "stream": lambda stream: contextlib.nullcontext(),
        "device": lambda device=None: contextlib.nullcontext(),
        "Stream": _Stream,
        "Event": _Event,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: None,
        "get_rng_state_all": lambda: [],
        "set_rng_state_all": lambda states: None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    accelerator: Any = getattr(torch, "accelerator", None)
    if accelerator is not None:
        named = torch.device("cuda")
        answers |= {
            "current_accelerator": lambda check_available=False: named,
            "current_device_index": answers["current_device"],
            "set_device_index": set_device,
            "get_memory_info": answers["mem_get_info"],
        }
        for name in {*answers} & {*dir(accelerator)}:
            setattr(accelerator, name, answers[name])
    for module in ("nccl",):
        part = getattr(torch.cuda, module, None)
        if part is not None:
            part.version = lambda: (2, 0, 0)
    torch.distributed.is_nccl_available = lambda: True


class _Stream:
    """A stream in which every operation is complete at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *args: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def wait_stream(self, other: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def query(self) -> bool:
        return True


class _Event:
    """An event that is complete."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        pass

    def wait(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 0.0


def _replace_modules_methods() -> None:
    module: Any = torch.nn.Module
    original = module.to

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        changed = [_CPU if isinstance(each, int) and not isinstance(each, bool) else _mapped(each) for each in args]
        named = {name: _mapped(value) for name, value in kwargs.items()}
        if isinstance(named.get("device"), int):
            named["device"] = _CPU
        return original(self, *changed, **named)

    module.to = to
    module.cuda = lambda self, device=None: self
    for name in ("cuda", "pin_memory"):
        setattr(torch.Tensor, name, lambda self, *args, **kwargs: self)
    load = torch.load

    def on_cpu(*args: Any, **kwargs: Any) -> Any:
        place = kwargs.get("map_location")
        if isinstance(place, dict):
            place = None
        kwargs["map_location"] = _CPU if place is None or isinstance(place, int) else _mapped(place)
        return load(*args, **kwargs)

    torch.load = on_cpu


def _replace_mixed_precision() -> None:
    """autocast("cuda") becomes the CPU's, which supports bfloat16; its gradient scaler does not scale."""
    original = torch.autocast.__init__

    def autocast(self: Any, device_type: str = "cuda", dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", torch.bfloat16 if dtype in (None, torch.float16) else dtype
        original(self, device_type, dtype, *args, **kwargs)

    torch.autocast.__init__ = autocast  # type: ignore[method-assign]

    def cuda_autocast(enabled: bool = True, dtype: Any = torch.float16, cache_enabled: bool = True) -> Any:
        return torch.autocast("cuda", dtype, enabled, cache_enabled)

    torch.cuda.amp.autocast = cuda_autocast  # type: ignore[misc, assignment]
    scaler = torch.amp.GradScaler.__init__

    def grad_scaler(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        if device == "cuda":
            scaler(self, "cpu", enabled=False)
        else:
            scaler(self, device, *args, **kwargs)

    torch.amp.GradScaler.__init__ = grad_scaler  # type: ignore[method-assign]
    torch.cuda.amp.GradScaler = lambda *args, **kwargs: torch.amp.GradScaler("cuda")  # type: ignore[misc, assignment]


def _replace_generators() -> None:
    """The default device and generators are made in C, where no mode sees them."""
    generator: Any = torch.Generator
    set_default_device = torch.set_default_device

    class Named(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, generator)

    class Generator(metaclass=Named):
        def __new__(cls, device: Any = "cpu") -> Any:
            return generator(_CPU if isinstance(device, int) else _mapped(device))

    torch.Generator = Generator  # type: ignore[misc]
    torch.set_default_device = lambda device: set_default_device(_mapped(device))


def _replace_ddp() -> None:
    wrapper = torch.nn.parallel.DistributedDataParallel
    original = wrapper.__init__

    def wrap(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        original(self, module, None, None, *args, **kwargs)

    wrapper.__init__ = wrap  # type: ignore[method-assign]

    def wrap_alone(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        torch.nn.Module.__init__(self)
        self.module, self.device_ids = module, []  # without devices, the wrapper calls the module

    torch.nn.DataParallel.__init__ = wrap_alone  # type: ignore[method-assign]


def _replace_sync_batch_norm() -> None:
    """SyncBatchNorm runs on GPUs only; this one computes mean and variance over all ranks by two all-reduces."""
    import torch.distributed as dist
    import torch.distributed.nn.functional

    def forward(self: Any, batch: Any) -> Any:
        world = dist.get_world_size(self.process_group) if dist.is_initialized() else 1
        if not self.training or world == 1:
            return torch.nn.functional.batch_norm(
                batch,
                self.running_mean,
                self.running_var,
                self.weight,
                self.bias,
                self.training or self.running_mean is None,
                self.momentum or 0.0,
                self.eps,
            )
        all_reduce: Any = torch.distributed.nn.functional.all_reduce

        dims = [0, *range(2, batch.dim())]
        shape = [1, -1, *[1] * (batch.dim() - 2)]
        own = torch.full((1,), batch.numel() / batch.shape[1])
        values = batch.to(torch.promote_types(batch.dtype, torch.float32))  # as a GPU does with what autocast has made
        total = all_reduce(torch.cat([values.sum(dims), own]), group=self.process_group)
        mean, count = total[:-1] / total[-1], float(total[-1])
        centred = values - mean.reshape(shape)
        variance = all_reduce((centred * centred).sum(dims), group=self.process_group) / count
        if self.running_mean is not None:
            with torch.no_grad():
                self.num_batches_tracked += 1
                share = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
                self.running_mean.lerp_(mean, share)
                self.running_var.lerp_(variance * count / (count - 1), share)
        made = centred * torch.rsqrt(variance + self.eps).reshape(shape)
        if self.weight is not None:
            made = made * self.weight.reshape(shape) + self.bias.reshape(shape)
        return made.to(batch.dtype)

    norm: Any = torch.nn.SyncBatchNorm
    norm.forward = forward
    wrapper: Any = torch.nn.parallel.DistributedDataParallel
    wrapper._passing_sync_batchnorm_handle = lambda self, module: None  # the original refuses modules on a CPU
