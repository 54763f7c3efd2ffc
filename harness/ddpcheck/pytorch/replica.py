"""The replica facet for torch: a wrapped nn.Module, torch.optim, arrays in and out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..contract.adapter import Batch
from ..contract.optional_methods import BackwardBroken
from ..execution.result_validation import offered_method
from ..job import OptimizerSpec
from ..seeded_values import Array
from .gpu_streams import keep_busy, settled
from .model import Loss, array_of, laid_out_like, tensor_of, tensor_sharing


@dataclass(frozen=True)
class Hooks:
    """Operations that the user's engine performs itself, beside forward."""

    no_sync: Callable[[Any], AbstractContextManager[Any]] | None = None
    after_backward: Callable[[Any], object] | None = None
    optimizer: Callable[[Any, OptimizerSpec], Any] | None = None
    clip: Callable[[Any, float], Any] | None = None
    predict: Callable[..., Any] | None = None
    backward: Callable[[Any, Tensor], object] | None = None
    gradient: Callable[[Any, nn.Parameter], Tensor | None] | None = None


class TorchReplica:
    """One rank's module, inside the wrapper under test, and its optimizer."""

    def __init__(
        self,
        module: nn.Module,
        wrapped: Any,
        loss: Loss,
        optimizer: OptimizerSpec,
        hooks: Hooks,
        *,
        takes_branches: bool,
        device: torch.device,
        unfreezing: bool = False,
    ) -> None:
        self._module = module
        self._wrapped = wrapped
        self._loss = loss
        self._hooks = hooks
        self._takes_branches = takes_branches
        self._device = device
        self._synchronising = True
        self._learned = {name: p for name, p in module.named_parameters() if p.requires_grad}
        # layers to be unfrozen later are in the optimizer from the start, since it skips parameters without a gradient
        trained = list(module.parameters()) if unfreezing else list(self._learned.values())
        self._optimizer = (
            make_optimizer(trained, optimizer) if hooks.optimizer is None else hooks.optimizer(wrapped, optimizer)
        )

    def backward(self, batch: Batch) -> float:
        inputs, targets = self._on_device(batch.inputs), self._on_device(batch.targets)
        outputs = self._call(self._wrapped, inputs, batch.branches)
        if batch.weights is not None:
            return self._backward_of(self._loss(outputs, targets, self._on_device(batch.weights)))
        return self._backward_of(self._loss(outputs, targets))

    def backward_of_both(self, first: Batch, second: Batch) -> float:
        outputs = [self._call(self._wrapped, self._on_device(b.inputs), b.branches) for b in (first, second)]
        losses = [self._loss(y, self._on_device(b.targets)) for y, b in zip(outputs, (first, second), strict=True)]
        return self._backward_of(losses[0] + losses[1])

    def _backward_of(self, loss: Tensor) -> float:
        # before backward, since reading the value waits for the device; afterwards it would wait in place of a faulty
        # engine
        value = float(loss.item())
        keep_busy(self._device)
        if self._hooks.backward is not None:
            self._hooks.backward(self._wrapped, loss)
        else:
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves Tensor.backward without annotations
        if self._synchronising and self._hooks.after_backward is not None:
            self._hooks.after_backward(self._wrapped)
        return value

    def break_backward(self, batch: Batch) -> float:
        # torch goes from the last layer to the first: in the middle some gradients exist, and buckets may be in flight
        learned = [p for p in self._learned.values() if p.requires_grad]
        hook = learned[(len(learned) - 1) // 2].register_hook(_break)  # type: ignore[no-untyped-call]  # torch does not say
        try:
            return self.backward(batch)
        finally:
            hook.remove()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        with self._engines_no_sync():
            before, self._synchronising = self._synchronising, False
            try:
                yield
            finally:
                self._synchronising = before

    def _engines_no_sync(self) -> AbstractContextManager[Any]:
        if self._hooks.no_sync is not None:
            return self._hooks.no_sync(self._wrapped)
        return offered_method(self._wrapped, "no_sync")()  # type: ignore[no-any-return]  # the wrapper's own

    def join(self) -> AbstractContextManager[Any]:
        return offered_method(self._wrapped, "join")()  # type: ignore[no-any-return]  # the wrapper's own

    def zero_grad(self) -> None:
        """In torch's default form: a wrapper that keeps gradients as views of a flat buffer loses them here."""
        self._optimizer.zero_grad(set_to_none=True)

    def zero_gradients(self) -> None:
        self._optimizer.zero_grad(set_to_none=False)

    def set_trainable(self, layers: Sequence[str], trainable: bool) -> None:
        for layer in layers:
            for name, parameter in self._module.get_submodule(layer).named_parameters(layer):
                parameter.requires_grad_(trainable)
                self._learned[name] = parameter  # even if it is frozen: a gradient that it gets would be applied

    def clip(self, max_norm: float) -> float:
        if self._hooks.clip is not None:
            return float(self._hooks.clip(self._wrapped, max_norm))
        return float(nn.utils.clip_grad_norm_(self._learned.values(), max_norm))

    def step(self) -> None:
        keep_busy(self._device)
        self._optimizer.step()

    def gradients(self) -> Mapping[str, Array | None]:
        return settled(
            self._device,
            "the gradient of",
            lambda: {
                name: None if (gradient := self._gradient_of(p)) is None else array_of(gradient)
                for name, p in self._learned.items()
            },
        )

    def _gradient_of(self, parameter: nn.Parameter) -> Tensor | None:
        return parameter.grad if self._hooks.gradient is None else self._hooks.gradient(self._wrapped, parameter)

    def parameters(self) -> Mapping[str, Array]:
        return self._all_of("parameter", self._module.named_parameters)

    def buffers(self) -> Mapping[str, Array]:
        return self._all_of("buffer", self._module.named_buffers)

    def _all_of(self, kind: str, tensors: Callable[[], Iterable[tuple[str, Tensor]]]) -> Mapping[str, Array]:
        return settled(self._device, kind, lambda: {name: array_of(tensor) for name, tensor in tensors()})

    @torch.no_grad()
    def predict(self, batch: Batch) -> Array:
        # by default without the wrapper's forward, which may communicate: one rank alone may call predict(). Training loops
        # call eval() on the wrapper if it is a module
        hook = self._hooks.predict
        evaluated = self._module if hook is None else partial(hook, self._wrapped)
        told = self._wrapped if isinstance(self._wrapped, nn.Module) else self._module
        told.eval()
        try:
            return array_of(self._call(evaluated, self._on_device(batch.inputs), batch.branches))
        finally:
            told.train()

    def state(self) -> Mapping[str, Array]:
        names = self._in_the_optimizers_order()
        optimizer = {
            f"optimizer/{names[index]}/{key}": array_of(torch.as_tensor(value))
            for index, values in self._optimizer.state_dict()["state"].items()
            for key, value in values.items()
            if value is not None
        }
        return {**self.parameters(), **self.buffers(), **optimizer}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Array]) -> None:
        held = {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}
        missing = sorted(held.keys() - state.keys())
        if missing:
            raise ValueError(f"the saved state lacks {', '.join(missing)}; was it saved from another model?")
        # in place, since the wrapper may refer to these tensors
        for name, tensor in held.items():
            tensor.copy_(laid_out_like(tensor, tensor_of(state[name])))
        values: dict[int, dict[str, Tensor]] = {}
        for index, name in enumerate(self._in_the_optimizers_order()):
            prefix = f"optimizer/{name}/"
            own = {
                key.removeprefix(prefix): laid_out_like(held[name], tensor_of(value))
                for key, value in state.items()
                if key.startswith(prefix)
            }
            if own:
                values[index] = own
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": values, "param_groups": groups})

    def _in_the_optimizers_order(self) -> list[str]:
        """Names of parameters in the numbering of state_dict(): by groups."""
        names = {id(parameter): name for name, parameter in self._module.named_parameters()}
        held = [id(parameter) for group in self._optimizer.param_groups for parameter in group["params"]]
        if strangers := [identity for identity in held if identity not in names]:
            raise ValueError(
                f"{len(strangers)} of {len(held)} parameters of the optimizer are no longer those of the module: the wrapper "
                "has put others in their place, as torch's fully_shard does from forward to backward, and longer after a forward "
                "alone with reshard_after_forward=False: reshard() after an evaluation"
            )
        return [names[identity] for identity in held]

    def _call(self, module: Any, inputs: Tensor, branches: tuple[str, ...]) -> Any:
        return module(inputs, branches) if self._takes_branches else module(inputs)

    def _on_device(self, array: Array) -> Tensor:
        # a sparse gradient keeps the ids of its batch, and the array is the caller's again after this call
        make = tensor_of if array.dtype.kind == "i" else tensor_sharing
        return make(array).to(self._device)


def _break(_: Tensor) -> None:
    raise BackwardBroken("raised on purpose by the Job, in the middle of a backward")


def make_optimizer(parameters: list[nn.Parameter], spec: OptimizerSpec) -> torch.optim.Optimizer:
    """Torch's own optimizer; foreach=False, since for small models its grouping costs more than it saves."""
    if spec.name == "sgd":
        return torch.optim.SGD(
            parameters, lr=spec.lr, momentum=spec.momentum, weight_decay=spec.weight_decay, foreach=False
        )
    return torch.optim.Adam(
        parameters, lr=spec.lr, betas=spec.betas, eps=spec.eps, weight_decay=spec.weight_decay, foreach=False
    )
