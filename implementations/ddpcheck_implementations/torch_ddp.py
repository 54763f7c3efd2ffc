"""torch DistributedDataParallel: the reference adapter with DDP's defaults, and one adapter for each option.

The backend is NCCL if each rank has a GPU of its own, else Gloo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpcheck.contract import Capabilities, Determinism, ReplicaSync, Traffic
from ddpcheck.contract.adapter import Adapter
from ddpcheck.contract.allowed_names import ALL_MODEL_FEATURES, ALL_TRAINER_FEATURES
from ddpcheck.contract.trainer import Train, TrainingRun, TrainingTask
from ddpcheck.pytorch.adapter import (
    TORCH_PROMISES,
    torch_adapter,
    torch_collectives,
    torch_metrics,
    torch_sampler,
    torch_scores,
)
from ddpcheck.pytorch.version import torch_at_least

if TYPE_CHECKING:
    from torch import nn

# Not promised:
# - propagates_nan: Gloo's min and max keep or lose NaN, depending on the rank that has it;
# - detects_dead_peer: only ranks that exchange messages with the dead one notice at once, the others after 30 s;
# - sparse gradients, which NCCL does not reduce.
# With an unused parameter, DDP's first backward leaves gradients local without an error; its second forward raises.
PROMISES = TORCH_PROMISES.but(
    subgroups=True,
    asynchronous=True,
    propagates_nan=False,
    bundles_gradients=True,
    replica_sync=ReplicaSync.EACH_FORWARD,
    numeric_options=frozenset({"bucket_cap_mb"}),
    model_features=ALL_MODEL_FEATURES - {"sparse"},
    sample_weights="equal_ranks",
    several_replicas=True,
    scores_count_once=True,
    scores_skip_padding=True,
    metrics_by_name=True,
    writable_results=True,
    unused_parameters="raises",
    join="divide_by_initial_world",
    broken_backward="raises",
    two_forwards=torch_at_least(2, 12),
    determinism=Determinism.BETWEEN_RUNS,
    traffic=Traffic.ONCE,
)


def _resnet18() -> nn.Module:
    from .resnet import ResNet18

    return ResNet18()


def _resnet18_narrow() -> nn.Module:
    from .resnet import ResNet18

    return ResNet18(width=8)


def _ddp(
    name: str,
    description: str,
    promises: Capabilities = PROMISES,
    trainer: Train | None = None,
    backend: str = "auto",
    **chosen: Any,
) -> Adapter:
    def wrap(module: nn.Module, bucket_cap_mb: float | None = None) -> nn.Module:
        from torch.nn.parallel import DistributedDataParallel

        settings = chosen if bucket_cap_mb is None else {**chosen, "bucket_cap_mb": bucket_cap_mb}
        return DistributedDataParallel(module, **settings)

    return torch_adapter(
        name,
        wrap,
        capabilities=promises,
        models={"resnet18": _resnet18, "resnet18_narrow": _resnet18_narrow},
        collectives=torch_collectives,
        sampler=torch_sampler,
        metrics=torch_metrics,
        scores=torch_scores,
        trainer=trainer,
        backend=backend,
        description=description,
    )


def _train(task: TrainingTask) -> TrainingRun:
    from .torch_training import train

    return train(task)


# Not promised:
# - closed_to_strangers: TCPStore listens on all interfaces;
# - exact_resume: DDP rebuilds its buckets after a model's first step, which changes the order of additions of three ranks.
adapter = _ddp(
    "torch_ddp",
    "torch DistributedDataParallel with its defaults",
    PROMISES.but(trainer_features=ALL_TRAINER_FEATURES - {"exact_resume"}),
    _train,
)

find_unused = _ddp(
    "torch_ddp_find_unused",
    "torch DDP that looks for unused parameters after each forward",
    PROMISES.but(unused_parameters="synchronised"),
    find_unused_parameters=True,
)

bucket_view = _ddp(
    "torch_ddp_bucket_view",
    "torch DDP whose gradients are views into its buckets, which saves a copy",
    gradient_as_bucket_view=True,
)

small_buckets = _ddp(
    "torch_ddp_small_buckets",
    "torch DDP with buckets so small that almost every parameter has one of its own",
    PROMISES.but(bundles_gradients=False),
    bucket_cap_mb=0.0001,
)

# Parameters unused in the first backward count as unused forever. A first backward inside no_sync() raises an internal
# error of torch.
static_graph = _ddp(
    "torch_ddp_static_graph",
    "torch DDP that takes the first step's graph for all steps",
    PROMISES.but(unused_parameters="undefined", no_sync=False, join=None, broken_backward=None),
    static_graph=True,
)

gloo = _ddp(
    "torch_ddp_gloo",
    "torch DDP over Gloo, also on GPUs: sparse gradients are reduced",
    PROMISES.but(model_features=ALL_MODEL_FEATURES),
    backend="gloo",
)
