"""A ready-made adapter for torch: pass the function that wraps a module, and get all facets of the contract.

    from ddpcheck.pytorch.adapter import torch_adapter
    from my_ddp import MyDDP

    adapter = torch_adapter("my_ddp", wrap=lambda module: MyDDP(module))

Importing this module does not import torch: the driver, which lists adapters and judges Traces, does not need it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..contract import TYPICAL, Capabilities, ReplicaMethod
from ..contract.adapter import (
    Adapter,
    AggregateMetrics,
    Collectives,
    ComputeScore,
    Facets,
    MakeReplica,
    MakeSampler,
    Replica,
    Sampler,
)
from ..contract.rank_context import RankContext
from ..contract.trainer import Train
from ..job import OptimizerSpec
from ..launchers.launcher import Launcher
from ..launchers.processes import Processes
from ..models.spec import ModelSpec
from ..seeded_values import Array

if TYPE_CHECKING:
    import torch
    from torch import nn

TORCH_PROMISES = TYPICAL.of_facets("replica").but(
    clipping=True, checkpoint=True, zeroes_gradients=True, refuses_options=True, shares_host=True, any_layout=True
)
"""The default promises of torch_adapter. Clipping, checkpoints and both forms of zero_grad work on any wrapped module;
options are parameters of `wrap`; torch's process groups meet at MASTER_PORT, and on CPUs nothing depends on LOCAL_RANK. Methods
that the wrapper lacks are not promised.
"""

_TIMEOUT = timedelta(seconds=30)
# the last one comes with the first optimizer at the latest
_SLOW_TO_IMPORT = ("torch", "torch.distributed", "torch._dynamo")


def torch_adapter(
    name: str,
    wrap: Callable[..., Any] | None = None,
    *,
    capabilities: Capabilities = TORCH_PROMISES,
    no_sync: Callable[[Any], AbstractContextManager[Any]] | None = None,
    backward: Callable[[Any, torch.Tensor], object] | None = None,
    after_backward: Callable[[Any], object] | None = None,
    gradient: Callable[[Any, nn.Parameter], torch.Tensor | None] | None = None,
    optimizer: Callable[[Any, OptimizerSpec], Any] | None = None,
    clip: Callable[[Any, float], Any] | None = None,
    predict: Callable[..., Any] | None = None,
    models: Mapping[str, Callable[[], nn.Module]] | None = None,
    collectives: Callable[[], Collectives] | None = None,
    sampler: MakeSampler | None = None,
    metrics: AggregateMetrics | None = None,
    scores: ComputeScore | None = None,
    trainer: Train | None = None,
    backend: str = "gloo",
    device: str = "auto",
    start: Callable[[RankContext], object] | None = None,
    place: Callable[[RankContext], tuple[int, int]] | None = None,
    launcher: Launcher | None = None,
    requires: tuple[str, ...] = ("torch",),
    description: str = "",
) -> Adapter:
    """An Adapter for an implementation that wraps nn.Modules.

    wrap            gets the plain module with this rank's initial values, and returns the module to call in its place, with the
                    same arguments. Training must still train the module's own parameters, whole or, if they are split over
                    the ranks, as DTensors. In training the module returns a tensor or, if activity or auxiliary_head is
                    promised, a tuple of tensors. Further parameters of wrap are the options that a user may set. If the
                    result is an nn.Module, its eval() and train() are called around an evaluation, and must reach the
                    module. On the CPU its inputs share memory with the caller's arrays.
    capabilities    the promises; the facets among them follow from these arguments. The result of wrap needs no
                    no_sync(), join() or state_dict(): their promises are then not made, and their checks are skipped.
                    With unfreezing the optimizer has the frozen parameters from the start, and requires_grad is switched.
    no_sync         the context in which backward does not communicate, which may be nested; by default the wrapper's own
                    no_sync().
    backward        runs the backward of a loss, from the result of wrap and the loss, for engines with a method of their own;
                    default: the loss's own backward().
    after_backward  called after each backward outside no_sync, for engines with an explicit call to synchronise.
    gradient        the whole gradient of a parameter, from the result of wrap and the parameter, for engines that keep it
                    elsewhere. All ranks call it. Default: the parameter's grad.
    optimizer       makes a torch.optim.Optimizer of your own, such as a sharded one, from the result of wrap and the settings.
                    It must compute the same steps as torch.optim's for the setting `name`; default: torch.optim's own.
    clip            clips the gradients of the result of wrap to a norm, and returns the norm before; default: torch's
                    clip_grad_norm_ on the module's parameters.
    predict         the outputs of an evaluation, from the result of wrap and the arguments of its forward; default: those of
                    the module itself, as a wrapper's forward may communicate. `lambda wrapped, *inputs: wrapped(*inputs)`
                    also judges the wrapper's forward; if that communicates, predicts_alone cannot be promised.
    models          models of your own by name; they take (batch, features) and return logits.
    collectives, sampler, metrics, scores, trainer
                    the other facets; torch_collectives, torch_sampler, torch_metrics and torch_scores below use torch's own.
    backend         of the default process group: "gloo", "nccl", or "auto" (nccl if each rank has a GPU).
    device          of the module and its batches: "auto" (the rank's GPU under nccl, else the CPU), or a kind, such as
                    "cuda": ranks of one host share its GPUs if there are fewer, which nccl refuses and gloo allows.
    start           starts the engine's own communication instead; RANK, WORLD_SIZE, MASTER_ADDR and so on are set.
    place           the rank and the world size of the engine's own communication; default: those of torch.distributed, or of
                    the RankContext if start has made no process group.
    """
    given = {
        "replica": wrap,
        "collectives": collectives,
        "sampler": sampler,
        "metrics": metrics,
        "scores": scores,
        "trainer": trainer,
    }
    offered = [facet for facet, value in given.items() if value is not None]
    promises = capabilities.of_facets(*offered)

    hooks = {
        "no_sync": no_sync,
        "backward": backward,
        "after_backward": after_backward,
        "gradient": gradient,
        "optimizer": optimizer,
        "clip": clip,
        "predict": predict,
    }

    def connect(context: RankContext) -> Facets:
        # errors are raised as well, so torch's hints on the terminal, as on find_unused_parameters, are not needed
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        import torch

        from .absent_methods import promises_without_method

        torch.set_num_threads(1)
        _export(context)
        if start is not None:
            start(context)
        else:
            _start_process_group(context, backend)
        home = _device(device, context.local_rank)
        if wrap is not None or trainer is not None:
            # the process's first optimizer imports torch's compiler, and its first tensor on a GPU initialises that,
            # which takes a second or more each: done here, not in a timed Job
            torch.optim.SGD([torch.zeros(1, device=home)])
        rank, world_size = (place or _place)(context)
        return Facets(
            rank=rank,
            world_size=world_size,
            collectives=collectives() if collectives else None,
            make_sampler=sampler,
            make_replica=_replica_maker(
                context.rank, home, wrap, models or {}, hooks, promises.has(ReplicaMethod.UNFREEZING)
            )
            if wrap
            else None,
            aggregate_metrics=metrics,
            compute_score=scores,
            train=trainer,
            close=_stop_process_group,
            lacks={
                **(promises_without_method(wrap, home, promises, no_sync=no_sync) if wrap else {}),
                **({} if home.type == "cpu" else {"any_layout": "ranks find their GPUs by LOCAL_RANK"}),
            },
        )

    return Adapter(
        name,
        connect,
        promises,
        launcher or Processes(preload=_SLOW_TO_IMPORT),
        requires,
        description,
        named_models=frozenset(models or ()),
    )


def torch_collectives() -> Collectives:
    """torch.distributed's collectives, for torch_adapter(collectives=...)."""
    from .facets import TorchCollectives

    return TorchCollectives()


def torch_sampler(length: int, *, shuffle: bool, seed: int, drop_last: bool) -> Sampler:
    """Torch's DistributedSampler, for torch_adapter(sampler=...)."""
    from .facets import make_sampler

    return make_sampler(length, shuffle=shuffle, seed=seed, drop_last=drop_last)


def torch_metrics(metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Means weighted by counts, in one all-reduce, for torch_adapter(metrics=...)."""
    from .facets import aggregate_metrics

    return aggregate_metrics(metrics, count)


def torch_scores(name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Sums of hits, squares, losses and counts of classes in one all-reduce, each sample once, for torch_adapter(scores=...)."""
    from .scores import compute_score

    return compute_score(name, outputs, targets, indices)


def _replica_maker(
    rank: int,
    device: torch.device,
    wrap: Callable[..., Any],
    models: Mapping[str, Callable[[], nn.Module]],
    hooks: Mapping[str, Callable[..., Any] | None],
    unfreezing: bool,
) -> MakeReplica:
    known = list(inspect.signature(wrap).parameters)[1:]

    def make_replica(
        model: ModelSpec | str, initial: Mapping[str, Array], optimizer: OptimizerSpec, options: Mapping[str, Any]
    ) -> Replica:
        from .auxiliary_terms import loss_of_model
        from .gpu_streams import keep_busy
        from .model import build_model, build_named, loss_of
        from .replica import Hooks, TorchReplica

        unknown = sorted(options.keys() - set(known))
        if unknown:
            raise ValueError(
                f"unknown options {', '.join(unknown)}; this implementation has {', '.join(known) or 'none'}"
            )
        if isinstance(model, str):
            # each rank has its own seed, so that a missing broadcast shows
            module, loss = build_named(model, models, rank), loss_of("cross_entropy")
        else:
            module = build_model(model, initial)
            loss = loss_of_model(model, module)
        module.to(device)
        keep_busy(device)
        wrapped = wrap(module, **options)
        if wrapped is None:
            raise TypeError("wrap() returned None, but should return the wrapped module")
        return TorchReplica(
            module,
            wrapped,
            loss,
            optimizer,
            Hooks(**hooks),
            takes_branches=isinstance(model, ModelSpec) and bool(model.branches),
            device=device,
            unfreezing=unfreezing,
        )

    return make_replica


def _place(context: RankContext) -> tuple[int, int]:
    import torch.distributed as dist

    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return context.rank, context.world_size


def _export(context: RankContext) -> None:
    """Set the variables that env:// and most torch code read; MPI launchers use other names, or none."""
    os.environ["RANK"] = str(context.rank)
    os.environ["WORLD_SIZE"] = str(context.world_size)
    os.environ["LOCAL_RANK"] = str(context.local_rank)
    os.environ["LOCAL_WORLD_SIZE"] = str(context.local_world_size)
    os.environ["MASTER_ADDR"] = context.master_addr
    os.environ["MASTER_PORT"] = str(context.master_port)


def _start_process_group(context: RankContext, backend: str) -> None:
    import torch
    import torch.distributed as dist

    if backend == "auto":
        enough = torch.cuda.is_available() and torch.cuda.device_count() >= context.local_world_size
        backend = "nccl" if enough and dist.is_nccl_available() else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(context.local_rank)
    dist.init_process_group(backend, timeout=_TIMEOUT)


def _device(kind: str, local_rank: int) -> torch.device:
    """The device of this rank's module. RuntimeError if there is no accelerator of that kind."""
    import torch

    from .facets import device_of_backend

    if kind == "auto":
        return device_of_backend()
    if kind == "cpu":
        return torch.device("cpu")
    present = torch.get_device_module(kind).device_count()
    if not present:
        raise RuntimeError(
            f"torch_adapter(device={kind!r}): torch finds no such device here; see python -m torch.utils.collect_env"
        )
    torch.get_device_module(kind).set_device(local_rank % present)
    return torch.device(kind, local_rank % present)


def _stop_process_group() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        # Gloo may abort a rank that still talks to a rank that has ended
        dist.barrier()
        dist.destroy_process_group()
