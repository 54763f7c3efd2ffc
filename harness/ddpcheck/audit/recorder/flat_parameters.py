"""Parameters that FullyShardedDataParallel (FSDP1) flattened and split: put together like those of fully_shard.

A flat parameter holds all parameters of one wrapper, one after the other, and is compared as one. With `use_orig_params=True`
a rank holds slices of the script's own parameters instead. Those are not put together.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .tensors import plain


def is_split(parameter: torch.Tensor) -> bool:
    """Whether it is a flat parameter of which each rank of the world holds an equal part."""
    flat: Any = parameter
    own, all_together = getattr(flat, "_sharded_size", None), getattr(flat, "_unpadded_unsharded_size", None)
    if own is None or all_together is None:
        return False
    ranks = dist.get_world_size()
    return bool(ranks > 1 and own.numel() == -(-all_together.numel() // ranks))


def whole(parameter: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The flat parameter, or its gradient, from all ranks' parts. All ranks have to call this together."""
    flat: Any = parameter
    size = flat._unpadded_unsharded_size.numel()
    kept = getattr(flat, "_local_shard", flat)  # the first forward makes it
    part = plain(kept if tensor is parameter else tensor).reshape(-1)
    if part.numel() != flat._sharded_size.numel():  # a gradient that is not reduced yet
        return part[:size]
    made = part.new_empty(part.numel() * dist.get_world_size())
    world: Any = dist.GroupMember.WORLD  # itself, so that no call of the script is noted
    world._allgather_base(made, part.contiguous()).wait()
    return made[:size]


def is_empty(parameter: torch.Tensor) -> bool:
    """Whether nothing has been accumulated in a flat parameter, whose earlier gradient is set aside in a backward."""
    flat: Any = parameter
    kept = (flat.grad, getattr(flat, "_saved_grad_shard", None))
    return all(each is None or not bool(each.any()) for each in kept)
