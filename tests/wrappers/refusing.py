"""Wrappers that raise: on one rank, while another waits for it in torch's constructor, and on all ranks."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddpcheck.pytorch.adapter import torch_adapter


def _on_rank_1(module: nn.Module) -> nn.Module:
    if dist.get_rank() == 1:
        raise RuntimeError("rank 1 refuses")
    return DistributedDataParallel(module)


def _on_all_ranks(module: nn.Module) -> nn.Module:
    raise RuntimeError("all ranks refuse")


on_rank_1 = torch_adapter("refusing_on_rank_1", _on_rank_1)
on_all_ranks = torch_adapter("refusing_on_all_ranks", _on_all_ranks)
