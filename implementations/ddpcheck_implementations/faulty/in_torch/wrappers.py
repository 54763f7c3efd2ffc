"""Mistakes of wrappers that are written in torch, and of communication hooks for its DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ddpcheck.contract.adapter import Adapter
from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

from ..registry import SeenIn, invented, register

EXACT = "check_gradients_equal_the_large_batch_exactly"


def torch_fault(
    name: str,
    *caught_by: str,
    cause: str = "",
    seen_in: SeenIn = invented,
    optimizer: Any = None,
    **promises: Any,
) -> Callable[[Callable[[Any], Any]], Adapter]:
    """Register what wraps a module. optimizer: one of its own; promises: Capabilities other than torch_adapter's."""

    def make(wrap: Callable[[Any], Any]) -> Adapter:
        wrap.__dict__["between_processes"] = True
        made = torch_adapter(
            name,
            wrap,
            capabilities=TORCH_PROMISES.but(**promises),
            after_backward=_synchronise,
            no_sync=_no_sync,
            optimizer=optimizer,
        )
        return register(
            name, caught_by, cause, seen_in, 2, wrap, made.connect, made.capabilities, made.launcher, made.requires
        )

    return make


def _synchronise(wrapped: Any) -> None:
    getattr(wrapped, "synchronise", lambda: None)()


def _no_sync(wrapped: Any) -> Any:
    return wrapped.no_sync() if hasattr(wrapped, "no_sync") else nullcontext()


@torch_fault("copied-back-late", EXACT, cause="not-reduced")
def copied_back_late(module: Any) -> Any:
    """Reduced gradients are put in place at the next forward."""
    from ...torch_mistakes import CopiedBackLate

    return CopiedBackLate(module)


@torch_fault(
    "hook-reduces-what-arrives",
    "check_accumulation_counts_every_micro_batch_once",
    cause="accumulated-not-reduced",
)
def hook_reduces_what_arrives(module: Any) -> Any:
    """A tensor hook reduces the gradient that arrives, and not what no_sync has gathered."""
    from ...torch_mistakes import ReducesWhatArrives

    return ReducesWhatArrives(module)


@torch_fault("hooks-on-replaced-parameters", EXACT, cause="not-reduced")
def hooks_on_replaced_parameters(module: Any) -> Any:
    """Hooks sit on parameters that were replaced since."""
    from ...torch_mistakes import HooksReplacedOnes

    return HooksReplacedOnes(module)


@torch_fault(
    "checkpointing-moves-statistics",
    "check_rank_0_running_statistics_follow_its_own_batches",
    cause="statistics-moved-twice",
)
def checkpointing_moves_statistics(module: Any) -> Any:
    """Activation checkpointing runs batch norm's forward twice."""
    from ...torch_mistakes import ComputedAnew

    return ComputedAnew(module)


@torch_fault(
    "flat-buffer-not-cleared",
    "check_unused_parameters_on_some_ranks_count_as_zero",
    seen_in=("NVIDIA/Megatron-LM#6565",),
    cause="unused-rank-sends-old-mean",
    unused_parameters="synchronised",
    unused_gradient="zero",
)
def flat_buffer_not_cleared(module: Any) -> Any:
    """A buffer made once still holds the mean of the backward before."""
    from ...torch_mistakes import BufferNotCleared

    return BufferNotCleared(module)


@torch_fault("forward-of-the-inner-module", EXACT, seen_in=("jingyaogong/minimind#853",), cause="not-reduced")
def forward_of_the_inner_module(module: Any) -> Any:
    """Training calls DistributedDataParallel's module, past its hooks."""
    ddp(module)
    return module


@torch_fault("comm-hook-sums", EXACT, cause="summed-not-averaged")
def comm_hook_sums(module: Any) -> Any:
    """A communication hook that forgets to divide."""
    from ...torch_mistakes import summed

    return ddp(module, summed)


@torch_fault("comm-hook-divides-twice", EXACT, cause="divided-too-often")
def comm_hook_divides_twice(module: Any) -> Any:
    """A communication hook that divides before and after the sum."""
    from ...torch_mistakes import divided_twice

    return ddp(module, divided_twice)


@torch_fault("comm-hook-sees-the-last-bucket", EXACT, cause="not-reduced")
def comm_hook_sees_the_last_bucket(module: Any) -> Any:
    """A communication hook that reduces the last bucket only."""
    from ...torch_mistakes import last_bucket_only

    return ddp(module, last_bucket_only)


@torch_fault(
    "comm-hook-float16",
    "check_gradients_are_the_mean_of_local_gradients",
    cause="rounded-as",
)
def comm_hook_float16(module: Any) -> Any:
    """Gradients are compressed to float16, which no promise says."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    return ddp(module, fp16_compress_hook)


@torch_fault(
    "frozen-weights-cached",
    "check_resumed_training_matches_one_process",
    cause="loss-of-unloaded-values",
)
def frozen_weights_cached(module: Any) -> Any:
    """Forward uses copies of what is frozen, which were made before a checkpoint was loaded."""
    from ...torch_mistakes import FrozenCached

    return FrozenCached(module)


@torch_fault("tied-places-averaged-one-by-one")
def tied_places_averaged(module: Any) -> Any:
    """Correct: tied layers' parameters are met twice, and averaged twice."""
    from ...torch_mistakes import PlaceByPlace

    return PlaceByPlace(module)


@torch_fault("first-of-tied-layers-is-unused", EXACT, seen_in=("pytorch/pytorch#46755",), cause="never-written")
def first_of_tied_is_unused(module: Any) -> Any:
    """Tied layers' parameters have two places, of which the first is taken for one that backward does not reach."""
    from ...torch_mistakes import OnePlaceOnly

    return OnePlaceOnly(module)


def ddp(module: Any, hook: Any = None) -> Any:
    """DistributedDataParallel in small buckets, with a communication hook if one is given."""
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(module, bucket_cap_mb=1e-4)
    if hook is not None:
        # a function of its own, without annotations: DDP compares those with its classes, and not as text
        wrapped.register_comm_hook(None, lambda state, bucket: hook(state, bucket))
    return wrapped
