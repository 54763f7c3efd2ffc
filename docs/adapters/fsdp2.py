"""torch's fully_shard (FSDP2): parameters, gradients and the state of the optimizer are split over the ranks."""

from itertools import chain
from typing import Any

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter


def wrap(module: Any) -> Any:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for tensor in chain(module.parameters(), module.buffers()):
        dist.broadcast(tensor.detach(), 0)  # else every rank's shard is of its own values
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))  # else that of a GPU, if there is one
    return fully_shard(module, mesh=mesh, reshard_after_forward=True)


adapter = torch_adapter(
    "fsdp2",
    wrap,
    capabilities=TORCH_PROMISES.but(
        model_features=TORCH_PROMISES.replica.model_features - {"scale"},  # it takes no scalars
        no_sync=False,  # it has another name: set_requires_gradient_sync(False)
        predicts_alone=False,
    ),
)
