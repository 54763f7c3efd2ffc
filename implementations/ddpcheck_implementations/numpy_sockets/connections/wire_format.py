"""Wire format: a header that describes the array, then its bytes. Nothing is unpickled.

    magic 4   operation 1   dtype 1   detail 2   group 4   sequence 8   elements 8   padding 4      = 32 bytes

`detail` is the reduction or the root. `sequence` counts the operations of a group, so that ranks notice a missing or an extra
call. In a collective all ranks send the same header: a receiver compares 32 bytes with its own, and unpacks them only if
they differ, for the error message.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

from ddpcheck.seeded_values import Array

_HEADER = struct.Struct("!4sBBHIQQ4x")
HEADER_BYTES = _HEADER.size
_MAGIC = b"NPS1"
OPERATION_BITS = 32
"""Bits of pack_word(). The sequence number is above them."""

REDUCTIONS: dict[str, np.ufunc] = {
    "sum": np.add,
    "mean": np.add,  # divided at the end
    "min": np.minimum,  # propagates NaN, as np.maximum does, wherever it comes from
    "max": np.maximum,
    "prod": np.multiply,
}
DTYPES = ("float16", "float32", "float64", "int32", "int64")

_OPERATIONS = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "barrier",
    "send",
    "abort",
    "all_reduce_in_place",
    "meet",
)
_OPERATION_CODES = {name: code for code, name in enumerate(_OPERATIONS)}
_REDUCTION_CODES = {name: code for code, name in enumerate(REDUCTIONS)}
_DTYPE_CODES = {np.dtype(name): code for code, name in enumerate(DTYPES)}
NO_GROUP = 0


_groups: dict[int, tuple[int, ...]] = {}


def group_code(ranks: Sequence[int]) -> int:
    """Return a number for a group of ranks, the same on all of them; describe() names the ranks by it."""
    code = zlib.crc32(struct.pack(f"!{len(ranks)}I", *ranks)) or 1
    _groups[code] = tuple(ranks)
    return code


def pack(operation: str, array: Array, detail: int | str = 0, group: int = NO_GROUP, sequence: int = 0) -> bytes:
    """Return the header of an operation on an array. TypeError on a dtype, ValueError on a reduction that is not supported."""
    try:
        dtype = _DTYPE_CODES[array.dtype]
        code = detail if isinstance(detail, int) else _REDUCTION_CODES[detail]
    except KeyError as error:
        raise _unknown(array, detail) from error
    if detail == "mean" and array.dtype.kind != "f":
        raise TypeError(f"a mean of {array.dtype} is not defined: convert to a float dtype, or reduce by sum")
    return _HEADER.pack(_MAGIC, _OPERATION_CODES[operation], dtype, code, group, sequence, array.size)


def pack_abort(culprit: int) -> bytes:
    """Return the last message of a rank that gives up, for the ranks that wait for it."""
    return _HEADER.pack(_MAGIC, _OPERATION_CODES["abort"], 0, culprit, NO_GROUP, 0, 0)


def culprit_of(header: bytes) -> int | None:
    """Return the rank that an abort names; None for any other header."""
    magic, operation, _, culprit, *_ = _HEADER.unpack(header)
    return culprit if magic == _MAGIC and operation == _OPERATION_CODES["abort"] else None


def calls_diverge(one: bytes, other: bytes) -> bool:
    """Whether two headers have the same number in the same group, but describe different operations."""
    magic, _, _, _, group, sequence, _ = _HEADER.unpack(one)
    same = (magic, group, sequence) == (_MAGIC, *_HEADER.unpack(other)[4:6])
    return same and group != NO_GROUP and one != other


def pack_word(header: bytes) -> int:
    """Pack a header without its group and sequence into OPERATION_BITS bits. The array has fewer than 2^18 elements."""
    _, operation, dtype, detail, _, _, count = _HEADER.unpack(header)
    word: int = operation << 26 | dtype << 22 | detail << 18 | count
    return word


def unpack_word(word: int, group: int) -> bytes:
    """Return the header of a word: a packed header, and above it the number of operations begun by the group."""
    operation, dtype, detail, count = word >> 26 & 63, word >> 22 & 15, word >> 18 & 15, word & (1 << 18) - 1
    return _HEADER.pack(_MAGIC, operation, dtype, detail, group, (word >> OPERATION_BITS) - 1, count)


def describe(header: bytes, *, receives: bool = False) -> str:
    """Describe a header in an error message. receives: name the operation as its receiver calls it."""
    magic, operation, dtype, detail, group, sequence, count = _HEADER.unpack(header)
    if magic != _MAGIC or operation >= len(_OPERATIONS) or dtype >= len(DTYPES):
        return f"bytes that are no header ({header[:8].hex()}...)"
    name = _OPERATIONS[operation]
    if name in ("all_reduce", "all_reduce_in_place", "reduce_scatter") and detail < len(REDUCTIONS):
        name += f"({tuple(REDUCTIONS)[detail]})"
    elif name == "broadcast":
        name += f"(root {detail})"
    if group == NO_GROUP:
        name = "recv" if receives and name == "send" else name
        return f"{name} of {count} x {DTYPES[dtype]}, message {sequence} of this pair"
    ranks = (
        f"ranks {', '.join(map(str, _groups[group]))}" if group in _groups else "a group that this rank does not know"
    )
    return f"{name} of {count} x {DTYPES[dtype]}, operation {sequence} of {ranks}"


def _unknown(array: Array, detail: int | str) -> Exception:
    if array.dtype not in _DTYPE_CODES:
        return TypeError(f"arrays of dtype {array.dtype} cannot be sent: convert to one of {', '.join(DTYPES)}")
    return ValueError(f"unknown reduction {detail!r}: choose one of {', '.join(REDUCTIONS)}")
