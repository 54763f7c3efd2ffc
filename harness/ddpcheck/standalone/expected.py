"""Expected values of replicas by the oracle, as lines of a script; large arrays are compared in part."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import numpy as np

from ..oracle import ExpectedArray
from ..oracle.bounded_values import Value
from ..seeded_values import Array
from .literals import bound, literal
from .text import Text

_WRITTEN = 256
"""Elements of one expected array that are written out; of larger ones only a part."""
_NOUNS = {"gradients": "gradient of", "parameters": "parameter", "buffers": "buffer", "averaged": "average of"}


def number(text: Text, value: Value, name: str, what: str) -> None:
    """Lines that compare the variable `name` with each rank's number, within its bound."""
    if anything_goes(value):
        return
    text.judges = True
    world = range(text.job.world_size)
    wants = _per_rank([_float(value.exact[rank]) for rank in world])
    within = ""
    if value.error is not None:
        within = f", within={_per_rank([bound(np.asarray(value.error[rank])) for rank in world])}"
    text.add(f'expect("{what}", float({name}), {wants}{within})')


def tensor(text: Text, what: str, name: str, entry: ExpectedArray, switched: AbstractSet[str]) -> None:
    """Lines that compare the tensor `name` of the dict `what` with the entry. switched: layers that were frozen or
    unfrozen.
    """
    value, got, indent = entry.value, f'{what}["{name}"]', ""
    if anything_goes(value):
        return
    noun, world = _NOUNS[what], range(text.job.world_size)
    if what == "gradients" and name.rpartition(".")[0] in switched:
        got = f'gradients.get("{name}")'  # gradients of a frozen layer may be missing
    part, of = "", value.exact[0].size
    if of > _WRITTEN:
        part, noun = f".reshape(-1)[::{_stride(of)}]", f"every {_stride(of)}th element of {noun}"
    if len(entry.ranks) < len(world):
        text.add(f"if rank in {list(entry.ranks)}:")
        indent = "    "
    wants = [
        "None" if entry.presence[rank] == "none"
        else written(_part(value.exact[rank], of), entry.dtype, bits=value.error is None)
        for rank in world
    ]  # fmt: skip
    there = [rank for rank in entry.ranks if entry.presence[rank] != "none"]
    lines = [f"want = {_per_rank(wants)}"]
    if value.error is not None and there:
        lines.append(f"within = {_per_rank([bound(_part(value.error[rank], of)) for rank in world])}")
    lines.append(f'expect("{noun} {name}", {got}{part}, want{", within" * (len(lines) > 1)})')
    if "either" in entry.presence:
        text.add(f"{indent}if {got} is not None:  # none is as good as zero here")
        indent += "    "
    text.add(*(indent + line for line in lines))


def anything_goes(value: Value) -> bool:
    """Whether the bound is infinite, so that any value is allowed."""
    return value.error is not None and not np.isfinite(value.error).any()


def written(exact: Array, dtype: str, *, bits: bool) -> str:
    """In the tensor's own dtype if bits are compared, otherwise in float64."""
    return literal(np.asarray(exact.astype(dtype) if bits else exact))


def _stride(size: int) -> int:
    return -(-size // _WRITTEN)


def _part(array: Array, size: int) -> Array:
    return array if size <= _WRITTEN else array.reshape(-1)[:: _stride(size)]


def _float(value: float) -> str:
    return repr(float(value)).replace("nan", "np.nan").replace("inf", "np.inf")


def _per_rank(texts: list[str]) -> str:
    return texts[0] if len(set(texts)) == 1 else f"[{', '.join(texts)}][rank]"
