"""Lightning Fabric: the module that setup() returns. Ranks are started by ddpcheck, as torchrun would."""

from functools import cache

from ddpcheck.pytorch.adapter import torch_adapter


@cache
def started():
    from lightning.fabric import Fabric
    from lightning.fabric.plugins.environments import TorchElasticEnvironment
    from lightning.fabric.strategies import DDPStrategy
    from torch.distributed import get_world_size

    strategy = DDPStrategy(cluster_environment=TorchElasticEnvironment())
    fabric = Fabric(accelerator="cpu", devices=get_world_size(), strategy=strategy)
    fabric.launch()
    return fabric


adapter = torch_adapter(
    "lightning_fabric",
    lambda module: started().setup(module),
    no_sync=lambda wrapped: started().no_backward_sync(wrapped),
)
