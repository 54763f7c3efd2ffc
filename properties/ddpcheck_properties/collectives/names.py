"""Names of collectives, for messages."""

from __future__ import annotations

from ddpcheck.job import AllReduce, Broadcast, Operation, TensorSpec
from ddpcheck.oracle.collectives import Reducing


def named(operation: Operation, position: int) -> str:
    """A description of an operation at this position of a Job, for messages."""
    return f"operation {position}, {described(operation)}"


def described(operation: Operation) -> str:
    """A description of an operation without its position."""
    begun = isinstance(operation, AllReduce) and not operation.wait
    text = f"{'asynchronous ' * begun}{operation.kind}"
    if isinstance(operation, Reducing):
        text += f" {operation.reduction}" + " in place" * getattr(operation, "in_place", False)
    tensor = getattr(operation, "tensor", None)
    if isinstance(tensor, TensorSpec):
        text += f" of {tensor.dtype}{list(tensor.shape)}" + f" laid out {tensor.layout}" * (
            tensor.layout not in ("C", "shared")
        )
        text += " given to other calls as well" * (tensor.layout == "shared")
        text += _HOLDING.get(tensor.values, "")
    if isinstance(operation, Broadcast):
        text += f" from rank {operation.root}"
    return text + in_group(operation)


def in_group(operation: Operation) -> str:
    """The group of an operation, to append to its name; empty for all ranks."""
    group = getattr(operation, "group", None)
    return "" if group is None else f" in group {list(group)}"


_HOLDING = {
    "sparse": ", mostly zeros,",
    "even": ", mostly one number,",
    "patchy": ", on some ranks all zeros, or mostly one number,",
}
