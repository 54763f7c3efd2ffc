"""Asynchronous collectives whose end nobody awaits, and those whose tensor is changed before."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.distributed import distributed_c10d as c10d

AWAITING = ("wait", "synchronize", "block_current_stream", "get_future", "get_future_result", "is_completed", "result")
"""The methods of a handle by which a program may learn that the collective has ended."""

How = Literal["unawaited", "changed"]


@dataclass(eq=False)
class Pending:
    """A collective that may still run. line: where it was started. versions: of its tensors, which PyTorch counts up when
    they, or any tensors that share their storage, are changed in place. about: further facts about its start.
    """

    operation: str
    line: str
    versions: tuple[tuple[weakref.ref[torch.Tensor], int], ...]
    about: Mapping[str, Any]
    awaited: bool = False

    def overlaps(self, written: torch.Tensor) -> bool:
        """Whether it uses memory of this tensor, as far as the first and the last element of each tensor tell."""
        place = place_of(written)
        near = [_extent(each) for each, _ in self._tensors() if place and place_of(each) == place]
        other = _extent(written) if near else range(0)  # a sparse tensor has none
        return any(own.start < other.stop and other.start < own.stop for own in near)

    @property
    def changed(self) -> bool:
        """Whether a tensor has changed that is its whole storage. Of a part, its version does not tell."""
        return any(each._version != version and _is_whole(each) for each, version in self._tensors())

    def _tensors(self) -> Iterator[tuple[torch.Tensor, int]]:
        for seen, version in self.versions:
            if (tensor := seen()) is not None:
                yield tensor, version


class PendingCollectives:
    """The handles of this process's asynchronous collectives.

    line: the program's line that is running. found: called once for each line that starts a collective, with the line that
    changes its tensor, or that runs when a lost handle is reported.
    """

    def __init__(self, line: Callable[[], str], found: Callable[[Pending, How, str], object]) -> None:
        self._line, self._found = line, found
        self._running = weakref.WeakKeyDictionary[Any, Pending]()
        self._lost: list[Pending] = []
        self._told = set[tuple[str, How]]()

    def started(self, operation: str, args: Iterable[Any], handle: Any, **about: Any) -> bool:
        """Watch the handle that a collective has returned for these arguments. Whether there is one."""
        self.report()
        if type(handle) is not c10d.Work:
            return False
        # tensors of an inference have no version
        versions = tuple(
            (weakref.ref(each), each._version) for each in tensors_in(list(args)) if not each.is_inference()
        )
        one = Pending(operation, self._line(), versions, about)
        self._running[handle] = one
        weakref.finalize(handle, self._gone, one).atexit = False
        return True

    def see(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """An operation of PyTorch, after it ran. A collective of its own is not a change."""
        if not self._running or operation.namespace == "c10d":
            return
        for each in _written(operation, args, kwargs):
            for one in [one for one in self._running.values() if not one.awaited and one.overlaps(each)]:
                self._tell(one, "changed")

    def asked(self, handle: Any) -> None:
        """The program calls a method of a handle."""
        one = self._running.get(handle)
        if one is None or one.awaited:
            return
        one.awaited = True
        if one.changed:  # by an operation that see() was not told of
            self._tell(one, "changed")

    def report(self) -> None:
        """Tell of the handles that are gone and were never asked: they may go inside any line."""
        while self._lost:
            self._tell(self._lost.pop(0), "unawaited")

    def _gone(self, one: Pending) -> None:
        if not one.awaited:
            self._lost.append(one)

    def _tell(self, one: Pending, how: How) -> None:
        if (one.line, how) not in self._told:
            self._told.add((one.line, how))
            self._found(one, how, self._line())


def place_of(tensor: torch.Tensor) -> int:
    """The address of the tensor's storage; 0 if it has none of its own, as a DTensor, or no elements."""
    own = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return tensor.untyped_storage().data_ptr() if own else 0


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """The tensors among these values, and in lists and tuples among them."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for each in values:
            yield from tensors_in(each)


@functools.cache
def written_arguments(operation: Any) -> dict[str, int]:
    """The arguments that an operation of PyTorch changes in place or fills, and their positions."""
    arguments = enumerate(operation._schema.arguments)
    return {each.name: place for place, each in arguments if each.alias_info is not None and each.alias_info.is_write}


def _written(operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    for name, place in written_arguments(operation).items():
        yield from tensors_in(args[place] if place < len(args) else kwargs.get(name))


def _extent(tensor: torch.Tensor) -> range:
    """The bytes of the storage from the first element to the last."""
    if not tensor.numel():
        return range(0)
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    begin, width = tensor.storage_offset(), tensor.element_size()
    return range(begin * width, (begin + last + 1) * width)


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether the tensor is its whole storage, so that each change of the storage changes it."""
    return bool(place_of(tensor)) and len(_extent(tensor)) == tensor.untyped_storage().nbytes()
