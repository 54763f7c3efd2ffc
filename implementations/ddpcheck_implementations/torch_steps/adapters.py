"""The four steps as adapters."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ddpcheck.contract.allowed_names import ALL_MODEL_FEATURES, MODEL_FEATURES
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

if TYPE_CHECKING:
    from torch import nn

    from .hooks import HookDDP
    from .manual import TwoCopies
    from .naive import NaiveDDP

ALONE = TORCH_PROMISES.but(
    world_sizes=frozenset({1}),
    unused_parameters="synchronised",
    model_features=ALL_MODEL_FEATURES,
    sample_weights="equal_ranks",
    several_replicas=True,
)


def _deep_mlp() -> nn.Module:
    from .deep_mlp import deep_mlp

    return deep_mlp()


MODELS = {"deep_mlp": _deep_mlp}


def _no_communication(context: RankContext) -> None:
    """Start nothing: there is one process."""


def _start(context: RankContext) -> None:
    from . import communication

    communication.start()


def _two_copies(module: nn.Module) -> TwoCopies:
    from .manual import TwoCopies

    return TwoCopies(module)


def _naive(module: nn.Module) -> NaiveDDP:
    from .naive import NaiveDDP

    return NaiveDDP(module)


def _hooks(module: nn.Module, bucket_bytes: int = 1 << 20) -> HookDDP:
    from .hooks import HookDDP

    return HookDDP(module, bucket_bytes)


monolith = torch_adapter(
    "torch_monolith",
    lambda module: module,
    no_sync=lambda wrapped: contextlib.nullcontext(),
    start=_no_communication,
    capabilities=ALONE,
    models=MODELS,
    description="step 1: one process, the whole batch",
)

# Accumulation in one copy would lose the other copy's half, and batch norm would normalise each half separately.
manual = torch_adapter(
    "torch_manual",
    _two_copies,
    after_backward=lambda wrapped: wrapped.average_gradients(),
    start=_no_communication,
    capabilities=ALONE.but(no_sync=False, model_features=MODEL_FEATURES - {"batch_norm"}),
    models=MODELS,
    description="step 2: two copies in one process, gradients averaged by hand",
)

# backward does not communicate, so no_sync only means that synchronise() is not called.
naive = torch_adapter(
    "torch_naive",
    _naive,
    no_sync=lambda wrapped: contextlib.nullcontext(),
    after_backward=lambda wrapped: wrapped.synchronise(),
    start=_start,
    capabilities=TORCH_PROMISES.but(
        unused_parameters="synchronised",
        unused_gradient="zero",
        model_features=ALL_MODEL_FEATURES,
        sample_weights="equal_ranks",
        several_replicas=True,
    ),
    models=MODELS,
    description="step 3: one all-reduce per parameter after backward",
)

hooks = torch_adapter(
    "torch_hooks",
    _hooks,
    after_backward=lambda wrapped: wrapped.finish(),
    start=_start,
    capabilities=TORCH_PROMISES.but(
        unused_parameters="synchronised",
        model_features=ALL_MODEL_FEATURES - {"sparse"},
        sample_weights="equal_ranks",
        several_replicas=True,
    ),
    models=MODELS,
    description="step 4: hooks start the all-reduce of full buckets during backward",
)
