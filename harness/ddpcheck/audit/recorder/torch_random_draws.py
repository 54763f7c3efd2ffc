"""Records random results in order, by operation and the script's line. A mirror run gets those of all ranks, put
together.

All operations that torch marks as drawing from a generator are seen. Draws during the loading of a batch belong to the
batch, which the mirror gets whole; they are noted only. Before the first batch only integers are recorded, because they may
choose samples; parameters are copied from the real run.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from ..recorded_process import Run
from . import (
    asynchronous,
    carried_values,
    class_weights,
    constants,
    gathered_places,
    gathered_targets,
    loss_terms,
    operation_values,
    untrained_writes,
    used_buffers,
)
from .tensors import digest, plain

_KEPT_BYTES = 512 << 20
_LOW = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
_PRODUCTS = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "convolution", "linear", "mkldnn_convolution", "_mkldnn_linear"}
)


class Draws:
    """The random results of the current step."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.kept: dict[str, torch.Tensor] = {}
        self._counts: dict[str, int] = {}
        self._bytes = 0
        self.mode: Any = None
        self._stepping = False

    def key(self, operation: str, line: str) -> str:
        """The operation, the line, whether gradients are on, and the number of equal keys before in this step."""
        return self._numbered(f"{operation} {line} {'train' if torch.is_grad_enabled() else 'eval'}")

    def _numbered(self, name: str) -> str:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{name} {count - 1}"

    @property
    def recorded(self) -> bool:
        """Whether random results of this step are recorded: a mirror run or a resumed run is compared with them."""
        return self.run.full or self.run.settings.resumes

    def add(self, operation: str, line: str, value: torch.Tensor) -> None:
        run = self.run
        key = self.key(operation, line)
        if run.full and self._bytes < _KEPT_BYTES:
            copy = plain(value).clone()
            self._bytes += copy.numel() * copy.element_size()
            self.kept[key] = copy
        if self.recorded:
            run.note(
                "draw" if run.full else "later_draw",
                op=operation, key=key, step=run.step, digest=digest(value), shape=list(value.shape), line=line,
                integer=not value.is_floating_point(), training=run.trains, backwards=run.backwards,
            )  # fmt: skip

    def add_of_loading(self, operation: str, line: str, value: torch.Tensor) -> None:
        run = self.run
        if run.full and not run.mirrors and not run.in_backward and value.is_floating_point():
            run.note(
                "loading_draw",
                op=operation, key=self._numbered(f"{operation} {line} loading"), step=run.step, digest=digest(value),
                shape=list(value.shape), line=line, training=run.trains,
            )  # fmt: skip

    def close_step(self) -> None:
        run = self.run
        if self.kept and not run.mirrors:
            run.journal.keep(f"draws-{run.step}", self.kept)
        self.kept, self._counts = {}, {}
        last = not run.settings.resumes and run.step + 1 >= run.settings.steps
        if not run.mirrors and last and self._leave():
            self.mode = None  # later draws are not recorded, and operations are faster without it

    def _leave(self) -> bool:
        """Watch operations no more. False if something that began later watches them, too, or if nothing does."""
        current: Any = _get_current_dispatch_mode()  # typed as anything: torch leaves __exit__ without annotations
        if self.mode is None or current is not self.mode:
            return False
        current.__exit__(None, None, None)
        return True

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """For operations of the recorder itself, which draw nothing, and which are faster if nothing watches them."""
        left = self._leave()
        try:
            yield
        finally:
            if left:
                self.mode.__enter__()

    def step_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Optimizers of torch draw nothing."""
        self.step_ends()
        self._stepping = type(optimizer).__module__.startswith("torch.optim.") and self._leave()

    def step_ends(self) -> None:
        """Also called at the next forward: a step that raises has no end."""
        if self._stepping:
            self._stepping = False
            self.mode.__enter__()


@functools.cache
def _kind(operation: Any) -> tuple[bool, bool, bool, bool, bool]:
    """Whether it draws, whether it is a product, whether it is a loss that may be weighted by class, whether it may apply a
    constant, and whether it joins tensors.
    """
    name = operation.overloadpacket.__name__
    drawing = torch.Tag.nondeterministic_seeded in operation.tags
    joining = name in gathered_places.JOINING
    return drawing, name in _PRODUCTS, name in class_weights.LOSSES, name in constants.OPERATIONS, joining


@functools.cache
def _dropout_place(operation: Any) -> int | None:
    """The position of the probability of dropout among the operation's arguments; None if it has none."""
    names = [argument.name for argument in operation._schema.arguments]
    return names.index("dropout_p") if "dropout_p" in names else None


def _drops_nothing(operation: Any, args: Any, kwargs: Any) -> bool:
    """Whether an attention drops nothing: then its result is not random, although it is one of a drawing operation."""
    place = _dropout_place(operation)
    if place is None:
        return False
    given = args[place] if len(args) > place else (kwargs or {}).get("dropout_p", 0.0)
    return float(given) == 0.0


_Mode: Any = TorchDispatchMode  # the class is untyped


class _Watching(_Mode):  # type: ignore[misc]
    def __init__(self, draws: Draws) -> None:
        super().__init__()
        self._draws = draws

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled in an audit, and torch's guard against that costs more than the rest of this mode."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = self._seen(func, args, kwargs)
        operation_values.of(self._draws.run).see(func, args, result)
        untrained_writes.of(self._draws.run).see(func, args, result)
        if not self._draws.run.mirrors:
            asynchronous.of(self._draws.run).see(func, args, kwargs or {})
        return result

    def _seen(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operation's result; in a mirror, a random one is that of the real run."""
        result = func(*args, **(kwargs or {}))
        draws, run = self._draws, self._draws.run
        drawing, product, loss, applying, joining = _kind(func)
        used_buffers.of(run).see(func, args, result)
        carried_values.of(run).see(func, args, result)
        loss_terms.of(run).see(func, args, result)
        if not drawing:
            if product and isinstance(result, torch.Tensor) and result.dtype in _LOW:
                run.precision = _LOW[result.dtype]
            if applying:
                constants.of(run).see(args)
            if joining:
                gathered_places.joined(run, args[0])
            if loss:
                class_weights.note(run, args, result)
                gathered_targets.note(run, args)
            return result
        if (args and isinstance(args[0], torch.nn.Parameter)) or _drops_nothing(func, args, kwargs):
            return result  # an initial value of a parameter, or not random
        name = func.overloadpacket.__name__
        several = isinstance(result, (tuple, list))
        drawn = result[1] if several and name == "native_dropout" else result[0] if several else result
        if not isinstance(drawn, torch.Tensor) or drawn.numel() == 0:
            return result
        if run.loading:
            draws.add_of_loading(name, run.line(), drawn)
            return result
        if not run.started and (drawn.is_floating_point() or not drawn.dim()):
            return result
        line = run.line()
        if not run.mirrors:
            draws.add(name, line, drawn)
            return result
        from ..mirror.replayed_random_draws import replayed

        there = replayed(run, draws.key(name, line), drawn, integer=not drawn.is_floating_point(), name=name)
        if there is None:
            return result
        if name == "native_dropout":
            scale = 0.0 if args[1] == 1 else 1.0 / (1.0 - args[1])
            mask = there.to(torch.bool)
            return args[0] * mask * scale, mask
        if name.endswith("_"):
            result.copy_(there)
            return result
        return (there, *result[1:]) if several else there


@functools.cache
def of(run: Run) -> Draws:
    """The draws of this run."""
    return Draws(run)


def install(run: Run) -> None:
    draws = of(run)
    draws.mode = _Watching(draws)
    draws.mode.__enter__()
