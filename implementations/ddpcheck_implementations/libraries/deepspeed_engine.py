"""DeepSpeed's engine on CPUs, at ZeRO stages 0, 1 and 2. Its initialize() takes the module and the optimizer together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ddpcheck.contract import Capabilities, ReplicaSync
from ddpcheck.contract.adapter import Adapter
from ddpcheck.contract.allowed_names import MODEL_FEATURES
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.job import OptimizerSpec
from ddpcheck.launchers.processes import Processes
from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

if TYPE_CHECKING:
    from torch import Tensor, nn

_TIMEOUT = timedelta(seconds=30)
_NO_CLIPPING = {"gradient_clipping": 0.0}
"""Without this setting, step() clips to norm 1: https://github.com/deepspeedai/DeepSpeed/pull/8068."""


def _start(context: RankContext) -> None:
    del context  # DeepSpeed reads RANK, WORLD_SIZE and so on, as torch does
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed  # pyright: ignore[reportMissingImports]  # an extra

    # the start would compile an extension for minutes, which only inference uses; other platforms do without it
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", timeout=_TIMEOUT, verbose=False)


class _Prepared:
    """A module until its optimizer is known, then the engine of both."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.engine: Any = None
        self.reduced = False  # whether the engine holds gradients of a backward that no step() has used
        self.local = False

    def __call__(self, *inputs: Any) -> Any:
        return self.engine(*inputs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """As the engine refuses to nest its own, the outermost context counts."""
        with nullcontext() if self.local else self.engine.no_sync():
            before, self.local = self.local, True
            try:
                yield
            finally:
                self.local = before

    def state_dict(self) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self.engine.module_state_dict()
        return state


class _Steps:
    """The engine as an optimizer: its step() also zeroes gradients."""

    def __init__(self, prepared: _Prepared) -> None:
        self._prepared = prepared
        self._optimizer = prepared.engine.optimizer

    def step(self) -> None:
        self._prepared.engine.step()
        self._prepared.reduced = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


def _backward(prepared: _Prepared, loss: Tensor) -> None:
    prepared.engine.backward(loss)
    prepared.reduced |= not prepared.local


def _gradient(prepared: _Prepared, parameter: nn.Parameter) -> Tensor | None:
    """DeepSpeed collects it from the ranks that hold a part of it, and on these raises a ValueError if there is none."""
    if parameter.grad is not None or not prepared.reduced:
        return parameter.grad
    from deepspeed.utils import safe_get_full_grad  # pyright: ignore[reportMissingImports]  # an extra

    gradient: Tensor | None = safe_get_full_grad(parameter)
    return gradient


def _adapter(stage: int, name: str, promises: Capabilities, settings: Mapping[str, Any] = _NO_CLIPPING) -> Adapter:
    def initialize(prepared: _Prepared, optimizer: OptimizerSpec) -> _Steps:
        import deepspeed  # pyright: ignore[reportMissingImports]  # an extra

        from ddpcheck.pytorch.replica import make_optimizer

        trained = [parameter for parameter in prepared.module.parameters() if parameter.requires_grad]
        prepared.engine, *_ = deepspeed.initialize(
            model=prepared.module,
            optimizer=make_optimizer(trained, optimizer),
            config={
                "train_micro_batch_size_per_gpu": 1,  # for its count of samples only
                "zero_optimization": {"stage": stage},
                "zero_allow_untested_optimizer": True,
                **settings,
            },
        )
        return _Steps(prepared)

    return torch_adapter(
        name,
        _Prepared,
        capabilities=promises,
        optimizer=initialize,
        backward=_backward,
        gradient=_gradient,
        start=_start,
        launcher=Processes(preload=("torch", "torch.distributed", "torch._dynamo", "deepspeed")),
        requires=("torch", "deepspeed"),
        description=f"DeepSpeed, ZeRO stage {stage}",
    )


# Parameters are broadcast, buffers are not. float64 and parameters without dimensions raise an error.
_STAGE_0 = TORCH_PROMISES.but(
    replica_sync=ReplicaSync.PARAMETERS,
    replica_dtypes={"float32"},
    model_features=MODEL_FEATURES - {"scale"},
    step_zeroes_gradients=True,
)
_STAGE_1 = _STAGE_0.but(clipping=False, checkpoint=False)  # both are methods of the engine, for its parts of a state

stage_0 = _adapter(0, "deepspeed_stage_0", _STAGE_0)
default_settings = _adapter(0, "deepspeed_default_settings", _STAGE_0, {})
stage_1 = _adapter(1, "deepspeed_stage_1", _STAGE_1)
stage_2 = _adapter(2, "deepspeed_stage_2", _STAGE_1.but(no_sync=False))
