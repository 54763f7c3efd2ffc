"""Mistakes of torch's users beside the reduction: copies, modes, what is unfrozen, optimizers; and hooks with thresholds."""

from __future__ import annotations

from typing import Any

from ddpcheck.contract.names import MODEL_FEATURES
from ddpcheck.job import OptimizerSpec

from ..replicas.freezing import UNFROZEN
from .wrappers import EXACT, ddp, torch_fault

LEAVES = "check_training_leaves_process_state_unchanged"
REAL = "check_gradients_equal_the_large_batch_within_rounding"


@torch_fault("torch-unfreezing", unfreezing=True)
def torch_unfreezing(module: Any) -> Any:
    """Correct: what is reduced is decided anew in every backward."""
    from ...torch_wrappers import SkipsNone

    return SkipsNone(module)


@torch_fault(
    "hooked-at-the-start",
    UNFROZEN,
    seen_in=("Lightning-AI/pytorch-lightning#20340",),
    cause="not-reduced",
    unfreezing=True,
)
def hooked_at_the_start(module: Any) -> Any:
    """Hooks sit on what learned at construction."""
    from ...torch_wrappers import HookedAtTheStart

    return HookedAtTheStart(module)


@torch_fault("trains-a-copy", EXACT, cause="no-gradients-anywhere")
def trains_a_copy(module: Any) -> Any:
    """The wrapper holds a copy of the module."""
    from ...torch_wrappers import TrainsACopy

    return TrainsACopy(module)


@torch_fault(
    "eval-stays-on-the-wrapper",
    "check_predict_uses_the_running_statistics",
    cause="evaluation-moves-statistics",
)
def eval_stays_on_the_wrapper(module: Any) -> Any:
    """The wrapper's eval() does not go on to the module."""
    from ...torch_wrappers import EvalStays

    return EvalStays(module)


@torch_fault(
    "eval-switches-reduction-off",
    "check_predict_does_not_change_training",
    cause="not-reduced",
)
def eval_switches_reduction_off(module: Any) -> Any:
    """After eval() train() brings back what torch switches, and not the reduction."""
    from ...torch_wrappers import EvalSwitchesOff

    return EvalSwitchesOff(module)


@torch_fault(
    "used-is-what-is-not-zero",
    "check_unused_parameters_on_some_ranks_count_as_zero",
    cause="use-told-by-value",
    unused_parameters="synchronised",
)
def used_is_what_is_not_zero(module: Any) -> Any:
    """A gradient of zeros is taken for none."""
    from ...torch_wrappers import UsedByValue

    return UsedByValue(module)


@torch_fault("clips-unasked", REAL, cause="wrong-factor")
def clips_unasked(module: Any) -> Any:
    """Gradients of a large norm are clipped in the wrapper."""
    from ...torch_wrappers import ClipsUnasked

    return ClipsUnasked(module)


@torch_fault("comm-hook-clamps", EXACT, cause="parts-clamped")
def comm_hook_clamps(module: Any) -> Any:
    """A communication hook that cuts off large elements."""
    from ...torch_wrappers import clamped

    return ddp(module, clamped)


@torch_fault("comm-hook-drops-small-ranks", REAL, cause="one-ranks-part-only")
def comm_hook_drops_small_ranks(module: Any) -> Any:
    """A communication hook in which a rank of a small gradient sends nothing."""
    from ...torch_wrappers import small_ones_dropped

    return ddp(module, small_ones_dropped)


def _zeroes_its_shard(wrapped: Any, settings: OptimizerSpec) -> Any:
    from ...torch_wrappers import ZeroesItsShard

    return ZeroesItsShard(wrapped.parameters(), settings.lr, settings.momentum, weight_decay=settings.weight_decay)


@torch_fault(
    "zero-grad-of-its-own-shard",
    EXACT,
    cause="some-ranks-not-reset",
    optimizer=_zeroes_its_shard,
    optimizers=frozenset({"sgd"}),
)
def zero_grad_of_its_own_shard(module: Any) -> Any:
    """A sharded optimizer's zero_grad resets what this rank owns."""
    return ddp(module)


def _skips_its_shard(wrapped: Any, settings: OptimizerSpec) -> Any:
    from ...torch_wrappers import SkipsItsShard

    return SkipsItsShard(wrapped.parameters(), settings.lr, settings.momentum, weight_decay=settings.weight_decay)


@torch_fault(
    "nan-seen-by-its-owner",
    "check_nonfinite_step_is_skipped_on_all_ranks",
    cause="nonfinite-decided-in-parts",
    optimizer=_skips_its_shard,
    optimizers=frozenset({"sgd"}),
    skips_nonfinite=True,
)
def nan_seen_by_its_owner(module: Any) -> Any:
    """A sharded optimizer's step is skipped by the ranks that own a NaN."""
    return ddp(module)


@torch_fault("keeps-outputs", LEAVES, cause="memory-grows")
def keeps_outputs(module: Any) -> Any:
    """Outputs are kept, and with them their graphs."""
    from ...torch_wrappers import KeepsOutputs

    return KeepsOutputs(module)


@torch_fault("hooks-in-each-forward", LEAVES, cause="memory-grows")
def hooks_in_each_forward(module: Any) -> Any:
    """Hooks are registered in every forward pass."""
    from ...torch_wrappers import HooksEachForward

    return HooksEachForward(module)


@torch_fault("seeds-in-each-forward", LEAVES, cause="process-generator-changed")
def seeds_in_each_forward(module: Any) -> Any:
    """The process is seeded in every forward pass."""
    from ...torch_wrappers import SeedsEachForward

    return SeedsEachForward(module)


@torch_fault("sets-the-default-dtype", LEAVES, cause="process-setting-changed")
def sets_default_dtype(module: Any) -> Any:
    """Inputs of float64 make that the default dtype of the process."""
    from ...torch_wrappers import SetsDefaultDtype

    return SetsDefaultDtype(module)


@torch_fault(
    "gradient-in-memory-order",
    "check_column_major_parameters_train_like_row_major",
    seen_in=("pytorch/pytorch#47163",),
    cause="strides-mixed",
    model_features=MODEL_FEATURES | {"strided"},
)
def in_memory_order(module: Any) -> Any:
    """A gradient is flattened as it lies in memory, and put back row after row."""
    from ...torch_wrappers import InMemoryOrder

    return InMemoryOrder(module)
