"""Records the script's collectives, process groups and seeds. Collectives inside DDP's reducer are not seen here."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ..recorded_process import Run
from . import asynchronous, compared_steps, gathered_places, models
from .divisors_before import divided_before
from .means_over_ranks import is_divided_by_world_size, metric_that_is_no_mean, numbers_that_divide
from .patching import line_in, own_frame, replace_everywhere
from .tensors import checksum

_NAMES = (
    "all_reduce",
    "all_reduce_coalesced",
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_gather_object",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "reduce_scatter_single",
    "gather",
    "gather_object",
    "scatter",
    "scatter_object_list",
    "broadcast_object_list",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "monitored_barrier",
)
_SMALL = 16
_READ = 8
"""The most calls of one line, with its callers, for which the source is read: each pass divides as the first does."""
_AUTOGRAD = os.path.join("torch", "autograd", "function.py")  # noqa: PTH118
_POINT_TO_POINT = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")


def install(run: Run) -> None:
    inside = [0]

    def noting(name: str) -> Any:
        def make(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if inside[0]:
                    return original(*args, **kwargs)
                described = _described(args, kwargs)
                run.note(
                    "collective",
                    op=name,
                    step=run.step,
                    number=run.backwards,
                    point=name in _POINT_TO_POINT,
                    loses_gradient=_loses_gradient(name, args, kwargs),
                    line=run.line(),
                    callers=run.callers(),
                    **described,
                    **_averaged(run, name, described),
                    **({"autograd": True} if name == "all_reduce" and run.full and _in_autograd_function() else {}),
                    **(_overwritten(run, args, kwargs) if name == "broadcast" else {}),
                )
                inside[0] += 1
                try:
                    result = original(*args, **kwargs)
                finally:
                    inside[0] -= 1
                gathered_places.gathered(run, name, args)
                started = asynchronous.started(run, name, (*args, *kwargs.values()), result)
                run.note(
                    "left",
                    op=name,
                    values=_small(args, kwargs) if result is None else None,
                    asynchronous=started,
                    **_sampled(run, name, args, result),
                )
                return result

            return call

        return make

    asynchronous.install(run)
    for name in (*_NAMES, *_POINT_TO_POINT):
        replace_everywhere((c10d, dist), name, noting(name))

    def make_init(original: Any) -> Any:
        def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
            asked = str(backend or "")
            if run.mirrors:
                from ..mirror import group

                result = group.start(original, run.settings.mirror_size)
            else:
                if run.settings.no_gpu:
                    backend = _without_nccl(backend)
                    kwargs.pop("device_id", None)
                result = original(backend, *args, **kwargs)
            run.note("world", backend=asked, size=dist.get_world_size(), rank=dist.get_rank(), line=run.line())
            return result

        return init_process_group

    def make_new_group(original: Any) -> Any:
        def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            if run.mirrors or run.settings.no_gpu:
                kwargs.pop("backend", None)
                args = args[:1]
            return original(ranks, *args, **kwargs)

        return new_group

    replace_everywhere((c10d, dist), "init_process_group", make_init)
    replace_everywhere((c10d, dist), "new_group", make_new_group)

    def make_seed(original: Any) -> Any:
        def manual_seed(seed: Any) -> Any:
            run.note("seed", seed=int(seed), step=run.step, line=run.line())
            return original(seed)

        return manual_seed

    replace_everywhere((torch.random, torch), "manual_seed", make_seed)

    def make_destroy(original: Any) -> Any:
        def destroy_process_group(group: Any = None) -> Any:
            if run.mirrors:
                return None  # nothing to leave open
            return original(group)

        return destroy_process_group

    replace_everywhere((c10d, dist), "destroy_process_group", make_destroy)


def _without_nccl(backend: Any) -> Any:
    return "gloo" if backend is None or "nccl" in str(backend) else backend


def _loses_gradient(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a tensor with a gradient is gathered or reduced outside an autograd function, which would return the gradient.

    A parameter is computed from nothing: an optimizer that gathers the parameters of other ranks needs no gradient of it.
    Small tensors that are gathered are shown, as losses are; a reduced one may be a part of the loss.
    """
    gathers = name.startswith("all_gather")
    if not gathers and name != "all_reduce":
        return False
    tensor = next((each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)), None)
    several = next((each for each in args[1:] if isinstance(each, torch.Tensor)), tensor)
    if several is None or several.grad_fn is None or (gathers and several.numel() <= _SMALL):
        return False
    return not _in_autograd_function()


def _in_autograd_function() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(_AUTOGRAD):
            return True
        frame = frame.f_back
    return False


def _overwritten(run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Root and previous digest of a tensor that is broadcast in training, and its name if it is a module's buffer."""
    tensor = args[0] if args else kwargs.get("tensor")
    if run.mirrors or not run.trains or not compared_steps.of(run).now() or not isinstance(tensor, torch.Tensor):
        return {}
    root = args[1] if len(args) > 1 else kwargs.get("src", kwargs.get("group_src", 0))
    buffers = (named for module in models.of(run).roots for named in module.named_buffers())
    names = [name.removeprefix("module.") for name, each in buffers if each is tensor]
    return {"root": int(root or 0), "digest": f"{checksum(tensor):x}", **({"buffer": names[0]} if names else {})}


def _small(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[float] | None:
    """The numbers in a small tensor, as metrics are."""
    tensor = next((each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)), None)
    if tensor is None or not 0 < tensor.numel() <= _SMALL or tensor.is_complex():
        return None
    return [float(each) for each in tensor.detach().reshape(-1).tolist()]


def _sampled(run: Run, name: str, args: tuple[Any, ...], result: Any) -> dict[str, list[float]]:
    """The first numbers of a larger result, which is compared with that of one process in training."""
    tensor = args[0] if args else None
    if (
        name != "all_reduce"
        or result is not None
        or not (run.full and run.trains)
        or not isinstance(tensor, torch.Tensor)
    ):
        return {}
    if tensor.numel() <= _SMALL or tensor.is_complex():
        return {}
    return {"sample": [float(each) for each in tensor.detach().reshape(-1)[:_SMALL].tolist()]}


def _averaged(run: Run, name: str, described: dict[str, Any]) -> dict[str, Any]:
    """Whether a small tensor is reduced to a mean over the ranks; the metric that it is, if that is no mean over samples; the
    numbers by which a sum is divided, or by which the values of a mean were divided before.
    """
    if name not in ("all_reduce", "reduce") or described["values"] is None:
        return {}
    frame = own_frame()
    if frame is None:
        return {"averaged": described.get("reduce") == "AVG"}
    if described.get("reduce") == "AVG" or is_divided_by_world_size(name, frame, described["group"]):
        metric = metric_that_is_no_mean(name, frame)
        return {"averaged": True, "metric": metric, "before": _divisors(run, name, frame, described["group"])}
    return {"averaged": False, "divided_by": numbers_that_divide(name, frame)}


def _divisors(run: Run, name: str, frame: FrameType, world_size: int) -> list[dict[str, Any]]:
    """By what each value of the tensor was divided before, and where; empty if one was not, or if such a call was read often."""
    calls, chain = _calls(run), (run.line(), *run.callers())
    calls[chain] += 1
    divided = divided_before(name, frame, world_size) if calls[chain] <= _READ else []
    return [
        {
            "by": each.by,
            "number": each.number,
            "world": each.world,
            "line": line_in(each.file, each.line, run.root),
        }
        for each in divided
        if all(other.line for other in divided)
    ]


@functools.cache
def _calls(run: Run) -> Counter[tuple[str, ...]]:
    """The number of means over ranks, by the line and its callers."""
    return Counter()


def _described(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Size, dtype, operation and group, as far as the arguments show them."""
    every = (*args, *kwargs.values())
    tensor = next((each for each in every if isinstance(each, torch.Tensor)), None)
    op = next((each for each in every if isinstance(each, (dist.ReduceOp, dist.ReduceOp.RedOpType))), None)
    group = next((each for each in every if isinstance(each, dist.ProcessGroup)), None)
    found: dict[str, Any] = {"grad": torch.is_grad_enabled(), "values": _small(args, kwargs)}
    found |= {"group": dist.get_world_size(group) if dist.is_initialized() else 0}
    if tensor is not None:
        found |= {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
    if op is not None:
        found["reduce"] = str(op).rpartition(".")[2].strip(">")
    return found
