"""Files of nested tensors: a pickle whose tensors lie behind it as raw bytes, one after the other.

torch.save calls Python for each object that it pickles and takes a checksum of each byte: several times the cost of the writing.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or value.layout != torch.strided or value.device.type != "cpu":
            return NotImplemented
        flat: Any = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(flat), value.dtype, tuple(value.shape))


def write(path: Path, value: Any) -> None:
    """Write nested tensors, and whatever else they are nested in."""
    head = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    _Pickler(head, protocol=5, buffer_callback=buffers.append).dump(value)
    parts = [each.raw() for each in buffers]
    with path.open("wb") as file:
        pickle.dump((head.getvalue(), [len(each) for each in parts]), file)
        for each in parts:
            file.write(each)


def read(path: Path) -> Any:
    """What write() wrote. The file holds objects of the script, which is why it is unpickled."""
    with path.open("rb") as file:
        head, sizes = pickle.load(file)
        buffers = []
        for size in sizes:
            part = bytearray(size)
            file.readinto(part)
            buffers.append(part)
    return pickle.loads(head, buffers=buffers)


def _tensor(data: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if not len(data):
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape)
