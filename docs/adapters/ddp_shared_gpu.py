"""torch's DistributedDataParallel with ranks that share GPUs: their modules lie there, and Gloo carries their gradients."""

from typing import Any

from ddpcheck.pytorch.adapter import torch_adapter


def wrap(module: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(module)


adapter = torch_adapter("ddp_shared_gpu", wrap, backend="gloo", device="cuda")
