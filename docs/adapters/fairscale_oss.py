"""FairScale's OSS in the place of the optimizer, with torch's DistributedDataParallel; and its clip_grad_norm()."""

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter


def wrap(module):
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(module)


def optimizer(wrapped, settings):
    import torch
    from fairscale.optim import OSS

    class Whole(OSS):
        def state_dict(self):  # on every rank, as each saves a state
            return super().state_dict(all_ranks=True)

    shared = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.name == "sgd":
        wrapped.sharded = Whole(wrapped.parameters(), torch.optim.SGD, momentum=settings.momentum, **shared)
    else:
        wrapped.sharded = Whole(
            wrapped.parameters(), torch.optim.Adam, betas=settings.betas, eps=settings.eps, **shared
        )
    return wrapped.sharded


def clip(wrapped, norm):
    return wrapped.sharded.clip_grad_norm(norm)


adapter = torch_adapter("fairscale_oss", wrap, optimizer=optimizer)
clipping_itself = torch_adapter(
    "fairscale_oss_clip",
    wrap,
    optimizer=optimizer,
    clip=clip,
    capabilities=TORCH_PROMISES.but(replica_dtypes={"float32"}),
)
