"""Tensors as digests, as bounded samples of their elements, and as copies that a file can hold."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

_SMALL = 1 << 16
"""Bytes of a tensor whose bits are hashed as they are."""
SAMPLED = 16384
"""The number of elements that are compared in a larger parameter, at even distances."""


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor on the CPU, detached, without subclass; of a DTensor the local part."""
    local: Any = tensor.detach()
    if hasattr(local, "to_local"):
        local = local.to_local()
    if local.layout != torch.strided:
        local = local.to_dense()
    made: torch.Tensor = local.cpu()
    return made


def without_rest(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied if it is a part of a larger storage, which would otherwise be saved, too."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size() else tensor.clone()


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether this rank holds only a part: a split DTensor, or a parameter that FullyShardedDataParallel flattened."""
    placements: Any = getattr(tensor, "placements", ())
    return any(each.is_shard() for each in placements) or hasattr(tensor, "_fsdp_flattened")


def digest(tensor: torch.Tensor) -> str:
    """A digest of shape, dtype and bits."""
    values = plain(tensor).contiguous()
    # processors have instructions for SHA-1
    made = hashlib.sha1(f"{values.dtype}{tuple(values.shape)}".encode(), usedforsecurity=False)
    if values.numel():
        made.update(values.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    return made.hexdigest()[:16]


def checksum(tensor: torch.Tensor) -> int:
    """Equal for equal tensors, on all ranks, and much cheaper than a digest. Of large tensors: sums of the bits as integers, and
    of their products, since a sum alone stays the same where elements change by opposite amounts, as in a mean over ranks.
    """
    bits = plain(tensor).contiguous().reshape(-1).view(torch.uint8).numpy()
    if len(bits) <= _SMALL:
        return _hash_of_bytes(bits.tobytes())
    whole = len(bits) // 8 * 8
    words = bits[:whole].view(np.uint64)
    products = np.dot(words, words), np.dot(words[1:], words[:-1])
    return hash((int(words.sum()), *map(int, products), _hash_of_bytes(bits[whole:].tobytes())))


def _hash_of_bytes(data: bytes) -> int:
    """hash() of bytes differs between processes."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def digest_of_nest(value: Any) -> str:
    """A digest of all tensors in nested containers, in order; other values count by their text."""
    parts: list[str] = []
    walk(value, lambda tensor: parts.append(digest(tensor)), lambda other: parts.append(repr(other)))
    return hashlib.blake2b("".join(parts).encode(), digest_size=8).hexdigest()


def sample(tensor: torch.Tensor) -> torch.Tensor:
    """A flat copy of the compared elements."""
    flat = plain(tensor).reshape(-1)
    if flat.numel() <= SAMPLED:
        return flat.clone()
    return flat[_places(flat.numel())]


@functools.cache
def _places(size: int) -> torch.Tensor:
    """Positions at even distances from the first element to the last."""
    return torch.linspace(0, size - 1, SAMPLED, dtype=torch.float64).long()


def nudged(tensor: torch.Tensor) -> torch.Tensor:
    """Every second value one unit up in the last place, the others one down; integers, which may be flags, are
    unchanged.
    """
    if not tensor.is_floating_point() or tensor.layout != torch.strided:
        return tensor
    flat = tensor.detach().reshape(-1)
    away = torch.full_like(flat, float("inf"))
    away[1::2] = -float("inf")
    moved = torch.where(flat == flat.round(), flat, torch.nextafter(flat, away))
    return moved.reshape(tensor.shape)


def copied(value: Any) -> Any:
    """A copy of nested containers with every tensor copied to the CPU."""
    return mapped(value, lambda tensor: plain(tensor).clone())


def mapped(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """A copy of nested containers with every tensor changed; containers that cannot be rebuilt are not copied."""
    if isinstance(value, torch.Tensor):
        return change(value)
    return rebuilt(value, [mapped(each, change) for each in children(value)])


def walk(value: Any, tensor: Callable[[torch.Tensor], None], other: Callable[[Any], None]) -> None:
    """Call `tensor` or `other` for each leaf."""
    if isinstance(value, torch.Tensor):
        tensor(value)
    elif is_container(value):
        for each in children(value):
            walk(each, tensor, other)
    else:
        other(value)


def is_container(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple)) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )


def children(value: Any) -> list[Any]:
    """The values in a container, in order; empty for other objects."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (list, tuple)):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, each.name) for each in dataclasses.fields(value)]
    return []


def rebuilt(value: Any, parts: list[Any]) -> Any:
    """A container of the same kind that holds these parts."""
    if isinstance(value, Mapping):
        made = dict(zip(value, parts, strict=True))
        return made if type(value) is dict else type(value)(made)  # type: ignore[call-arg]
    if isinstance(value, tuple):
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return parts
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value)]
        return dataclasses.replace(value, **dict(zip(names, parts, strict=True)))
    return value
