"""Records modules: parameter names, their state at the first forward after each step, batch norm, and bypassed DDP
wrappers.

The state is recorded at its first use, not at the optimizer's step, because code that averages parameters, or keeps a
moving average, runs in between. A mirror run loads the real run's state at the same point.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ..event_journal import JournalReader
from ..recorded_process import Run
from . import compared_steps, fully_sharded, gradients, modes, script_objects, torch_random_draws, untrained_writes
from .tensors import checksum, digest, is_sharded, nudged, plain, walk, without_rest
from .uncalled_models import uncalled_parameters

_OTHERWISE = 1e-3
"""A relative difference that no rounding makes, in initial values that are computed from the data."""
_WRAPPERS = re.compile(r"_orig_mod\.|_fsdp_wrapped_module\.")


class Models:
    """The modules that were called outside other modules, in the order of their first calls."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.objects: script_objects.ScriptObjects = script_objects.of(run)
        self.roots: list[torch.nn.Module] = self.objects.modules
        self.names: dict[int, str] = {}
        self.stale: bool = False
        self.depth: int = 0
        self._states = 0
        self._trained: list[bool] = []
        self._named: list[str] = []
        self.called: bool = False
        self.reached: bool = False
        self._gathered = False
        self._estimated: set[int] = set()
        self._after: dict[int, tuple[Any, str]] = {}
        """By id: how a parameter was recognisable after its last step, and its digest."""

    def enter(self, module: torch.nn.Module, args: Any) -> None:
        self.depth += 1
        if self.depth > 1 or self.run.loading or _is_loss(module):
            return
        draws = torch_random_draws.of(self.run)
        draws.step_ends()
        new = not any(module is root or module is _inner(root) for root in self.roots)
        if new:
            self.roots.append(module)
            self._trained.append(False)
            self._describe(module)
            compared_steps.of(self.run).change()
        if self.objects.optimizers and torch.is_grad_enabled():
            self.run.started = self.run.trains = True
            for place, root in enumerate(self.roots):
                if root is module or _inner(root) is module:
                    self._trained[place] = self._trained[place] or module.training
                    modes.of(self.run).see(place, module)
        self._see_statistics(module)
        if (new or self.stale) and self.run.started and compared_steps.of(self.run).now():
            self.stale = False
            with draws.unwatched():
                self._state()

    def _see_statistics(self, module: torch.nn.Module) -> None:
        """Note the statistics of a module that is not trained, where it is evaluated after a pass that estimates them."""
        run = self.run
        if run.mirrors or not run.trains or torch.is_grad_enabled():
            return
        if module.training:
            self._estimated.add(id(module))
        elif id(module) in self._estimated and not self._trains(module):
            self._estimated.discard(id(module))
            digests = {
                f"{name}.{kind}": digest(each)
                for name, norm in module.named_modules()
                if isinstance(norm, torch.nn.modules.batchnorm._NormBase)
                for kind, each in norm.named_buffers(recurse=False)
            }
            if digests:
                run.note(
                    "statistics", module=type(_inner(module)).__name__, step=run.step, digests=digests, line=run.line()
                )

    def _trains(self, module: torch.nn.Module) -> bool:
        return any(
            trained
            for root, trained in zip(self.roots, self._trained, strict=True)
            if root is module or _inner(root) is module or root is _inner(module)
        )

    def leave(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        self.depth = max(self.depth - 1, 0)
        run = self.run
        if self.depth or run.loading or run.mirrors or not run.full or _is_loss(module):
            return
        self.called = True
        walk(result, self._follow, lambda other: None)

    def _follow(self, output: torch.Tensor) -> None:
        if output.requires_grad:
            output.register_hook(self._reach)  # type: ignore[no-untyped-call]

    def _reach(self, gradient: torch.Tensor) -> None:
        self.reached = True

    def close_step(self) -> dict[str, bool]:
        """called: whether a module was called since the last step. reached: whether a gradient arrived at its
        output.
        """
        found = {"called": self.called, "reached": self.reached}
        self.called = self.reached = False
        return found

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors on which the next forward depends: the optimizers' parameters, other parameters, and buffers."""
        found = self.objects.parameters()
        known = {id(each) for each in found.values()}
        # a module that was called alone first is a part of its model later
        parts = {id(part) for root in self.roots for part in _inner(root).modules() if part is not _inner(root)}
        for place, root in sorted(enumerate(self.roots), key=lambda each: id(_inner(each[1])) in parts):
            for kind, named in (("m", root.named_parameters()), ("b", root.named_buffers())):
                for name, each in named:
                    if id(each) not in known:
                        known.add(id(each))
                        found[f"{kind}{place}.{name.removeprefix('module.')}"] = each
        return found

    def unoptimized(self) -> list[str]:
        """Parameters of trained modules that require a gradient and are in no optimizer."""
        known = {id(each) for each in self.objects.parameters().values()}
        return [
            name.removeprefix("module.")
            for root, trained in zip(self.roots, self._trained, strict=True)
            for name, each in root.named_parameters()
            if trained and each.requires_grad and id(each) not in known
        ]

    def layer_weights(self) -> set[int]:
        """Ids of the weights of linear and convolutional layers, whose rows belong to units."""
        kinds = (torch.nn.Linear, torch.nn.modules.conv._ConvNd)
        return {id(each.weight) for root in self.roots for each in root.modules() if isinstance(each, kinds)}

    def strays(self) -> list[str]:
        """Parameters of optimizers that are in no module that was called."""
        known = {id(each) for root in self.roots for each in root.parameters()}
        return [key for key, each in self.objects.parameters().items() if id(each) not in known]

    def _state(self) -> None:
        run, number = self.run, self._states
        self._states += 1
        if run.mirrors:
            self._restore(number)
        tensors = self.tensors()
        self.name_parameters()
        split = [each for each in tensors.values() if is_sharded(each)]
        if split and not self._gathered and all(fully_sharded.gathers(run, each) for each in split):
            self._gathered = True
            run.note("gathered", count=len(split), line=run.line())
        uncalled = {} if run.mirrors else uncalled_parameters(self.roots, self.objects.parameters().values())
        if not run.mirrors:
            untrained = {name: each for name, each in tensors.items() if name[0] == "m"}
            untrained_writes.of(run).name(untrained | uncalled)
        run.note(
            "state",
            number=number,
            step=run.step,
            digests={} if run.mirrors else self._digests(tensors | uncalled),
            unoptimized=self.unoptimized(),
            strays=self.strays(),
            grad=torch.is_grad_enabled(),
            line=run.line(),
        )
        if run.full and not run.mirrors:
            kept = {name: plain(fully_sharded.whole(run, each)) for name, each in tensors.items()}
            if run.rank == 0:
                run.journal.keep(f"state-{number}", {name: without_rest(each) for name, each in kept.items()})

    def stepped(self, parameters: list[torch.Tensor]) -> list[str]:
        """Digests of parameters after their step."""
        digests = [digest(each) for each in parameters]
        self._after |= {
            id(each): (_shape_and_bits(each), made)
            for each, made in zip(parameters, digests, strict=True)
            if not is_sharded(each)
        }
        return digests

    def _digests(self, tensors: dict[str, torch.Tensor]) -> dict[str, str]:
        """Digests of all tensors, except parts that are no longer put together."""
        made = {name: self._digest(each) for name, each in tensors.items()}
        return {name: value for name, value in made.items() if value}

    def _digest(self, tensor: torch.Tensor) -> str:
        """The digest after the last step, if the tensor has not changed since."""
        known, made = self._after.get(id(tensor), (None, ""))
        if known is not None and not is_sharded(tensor) and _shape_and_bits(tensor) == known:
            return made
        return fully_sharded.shared_digest(self.run, tensor)

    def _restore(self, number: int) -> None:
        settings = self.run.settings
        source = JournalReader(Path(settings.folder) / "real" / "0")
        if not source.has(f"state-{number}"):
            return
        kept = source.load(f"state-{number}")
        misfits = []
        if number == 0:
            self._note_initial(kept)
        with torch.no_grad():
            for name, each in self.tensors().items():
                there = kept.get(name)
                if settings.nudged and there is not None and name[0].isdigit():
                    there = nudged(there)
                own = _local(each)
                if there is None or there.shape != own.shape:
                    misfits.append(name)
                # an equal tensor may be in a graph that is still in use
                elif not torch.equal(own, there.to(own.device)):
                    own.copy_(there)
        if misfits:
            self.run.note("misfit", what="state", step=self.run.step, names=misfits[:8], line=self.run.line())

    def _note_initial(self, kept: dict[str, torch.Tensor]) -> None:
        """Note the norms of values that this run has made otherwise than the real one, as of what is computed from the data."""
        norms = {}
        for name, each in self.tensors().items():
            own, there = _local(each).detach().double(), kept.get(name)
            if each.is_floating_point() and there is not None and there.shape == own.shape:
                size, away = (float(torch.linalg.vector_norm(each)) for each in (own, own - there.to(own)))
                if away > _OTHERWISE * size:
                    norms[name] = size
        if norms:
            self.run.note("initial", norms=norms)

    def name_parameters(self) -> None:
        """Note the names of the optimizers' parameters, as the modules have them."""
        named: dict[int, str] = {}
        for root in [*self.roots, *self.objects.wrappers]:
            for name, each in _inner(root).named_parameters():
                named.setdefault(id(each), _WRAPPERS.sub("", name.removeprefix("module.")))
        found = {key: named[id(each)] for key, each in self.objects.parameters().items() if id(each) in named}
        self.names = {
            id(each): name for each, name in ((e, named.get(id(e), "")) for e in gradients.of(self.run).parameters)
        }
        if found and list(found) != self._named:
            self._named = list(found)
            self.run.note("names", names=found)

    def _describe(self, module: torch.nn.Module) -> None:
        norms = [
            name
            for name, each in module.named_modules()
            if isinstance(each, torch.nn.modules.batchnorm._BatchNorm) and not isinstance(each, torch.nn.SyncBatchNorm)
        ]
        synced = any(isinstance(each, torch.nn.SyncBatchNorm) for each in module.modules())
        dropout = any(isinstance(each, torch.nn.modules.dropout._DropoutNd) and each.p > 0 for each in module.modules())
        self.run.note(
            "module",
            place=len(self.roots) - 1,
            name=type(_inner(module)).__name__,
            wrapper=type(module).__name__ if _inner(module) is not module else "",
            parameters=sum(each.numel() for each in module.parameters()),
            batch_norms=norms,
            sync_batch_norm=synced,
            dropout=dropout,
            own_norms=_unused_norms(module),
            grad=torch.is_grad_enabled(),
            line=self.run.line(),
        )


def _unused_norms(module: torch.nn.Module) -> list[str]:
    """Kinds of batch norm that the script defines and this module does not contain."""
    every = list(torch.nn.modules.batchnorm._BatchNorm.__subclasses__())
    for kind in every:
        every += kind.__subclasses__()
    own = [kind for kind in every if not kind.__module__.startswith("torch.")]
    return sorted({kind.__name__ for kind in own if not any(type(each) is kind for each in module.modules())})


def _shape_and_bits(tensor: torch.Tensor) -> Any:
    return tensor.shape, tensor.dtype, checksum(tensor)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of the tensor that this process holds; in a mirror of one process, all of it."""
    own: Any = tensor
    return own.to_local() if hasattr(own, "to_local") else tensor


def _inner(module: torch.nn.Module) -> torch.nn.Module:
    """The module inside a DDP wrapper."""
    return module.module if isinstance(module, torch.nn.parallel.DistributedDataParallel) else module


def _is_loss(module: torch.nn.Module) -> bool:
    """Whether the module is a loss, an activation or the like, which holds no state."""
    return next(module.parameters(), None) is None and next(module.buffers(), None) is None


@functools.cache
def of(run: Run) -> Models:
    """The modules of this run."""
    return Models(run)


def install(run: Run) -> None:
    models = of(run)
    register_module_forward_pre_hook(models.enter)
    register_module_forward_hook(models.leave, always_call=True)
