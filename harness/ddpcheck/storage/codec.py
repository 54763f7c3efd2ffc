"""Plain data and NumPy arrays to bytes and back: JSON for the structure, raw bytes for the arrays, never pickle.

Arrays keep dtype, shape and every bit (NaN payloads included). Decoded arrays are C-contiguous and read-only.
"""

from __future__ import annotations

import json
import math
import re
import struct
from typing import Any

import numpy as np

from ..seeded_values import Array

_HEADER = struct.Struct("!I")
_ALIGNMENT = 16
"""Arrays begin at multiples of this many bytes, because NumPy is slower on other addresses."""
_LARGE = 1 << 12
"""From this many bytes an array is copied only once, to its final place. For a smaller array a second copy is
cheaper.
"""
_MARK = "__array__"
_ALLOWED_KINDS = "biufc"
_DTYPE = re.compile(f"[<>|][{_ALLOWED_KINDS}][0-9]{{1,2}}")


class _Encoder:
    def __init__(self) -> None:
        self.chunks: list[bytes | memoryview] = []
        self.size = 0

    def array(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            value = np.asarray(value)
        if not isinstance(value, np.ndarray):
            raise TypeError(
                f"cannot encode {type(value).__module__}.{type(value).__qualname__}: plain data and NumPy arrays only"
            )
        if value.dtype.kind not in _ALLOWED_KINDS:
            raise TypeError(f"cannot encode an array of dtype {value.dtype}: numbers and booleans only")
        start = self.size
        plain = type(value) is np.ndarray and value.nbytes >= _LARGE
        self.chunks.append(np.ascontiguousarray(value).data if plain else value.tobytes())
        padding = -value.nbytes % _ALIGNMENT
        if padding:
            self.chunks.append(bytes(padding))
        self.size += value.nbytes + padding
        return {_MARK: [value.dtype.str, value.shape, start]}


def encode(data: Any) -> bytes:
    """Bytes of nested dicts (string keys), lists, tuples, scalars and arrays. TypeError for other types."""
    encoder = _Encoder()
    head = json.dumps(data, default=encoder.array, separators=(",", ":"), check_circular=False).encode()
    head += b" " * (-(_HEADER.size + len(head)) % _ALIGNMENT)
    return b"".join((_HEADER.pack(len(head)), head, *encoder.chunks))


def decode(raw: bytes | bytearray | memoryview) -> Any:
    """Inverse of encode (tuples become lists). ValueError for bytes that encode() did not write."""
    if len(raw) < _HEADER.size:
        raise ValueError(f"{len(raw)} bytes are too few for an encoded value")
    (size,) = _HEADER.unpack_from(raw)
    start = _HEADER.size + size
    body = memoryview(raw)[start:].toreadonly()

    def revive(mapping: dict[str, Any]) -> Any:
        return _array(body, *mapping[_MARK]) if _MARK in mapping else mapping

    try:
        return json.loads(bytes(raw[_HEADER.size : start]), object_hook=revive)
    except (TypeError, RecursionError, OverflowError) as error:
        raise ValueError(f"these bytes are not an encoded value: {error}") from error


def _array(body: memoryview, dtype: Any, shape: Any, offset: Any) -> Array:
    """A part of `body`. ValueError, TypeError or OverflowError if it does not exist."""
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise ValueError(f"{dtype!r} is not a numeric dtype")
    if not isinstance(shape, list) or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"{shape!r} is not a shape")
    array: Array = np.frombuffer(body, dtype, math.prod(shape), offset).reshape(shape)
    return array
