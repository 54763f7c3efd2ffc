"""torch's DistributedDataParallel with its ZeroRedundancyOptimizer: each rank updates some parameters, and sends them round."""

from ddpcheck.pytorch.adapter import torch_adapter


def wrap(module):
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(module)


def optimizer(wrapped, settings):
    import torch
    from torch.distributed import get_rank, get_world_size
    from torch.distributed.optim import ZeroRedundancyOptimizer

    class Whole(ZeroRedundancyOptimizer):
        def state_dict(self):  # on every rank, as each saves a state
            whole = {}
            for rank in range(get_world_size()):
                self.consolidate_state_dict(to=rank)
                if rank == get_rank():
                    whole = super().state_dict()
            return whole

    shared = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.name == "sgd":
        return Whole(wrapped.parameters(), torch.optim.SGD, momentum=settings.momentum, **shared)
    return Whole(wrapped.parameters(), torch.optim.Adam, betas=settings.betas, eps=settings.eps, **shared)


adapter = torch_adapter("ddp_zero", wrap, optimizer=optimizer)
