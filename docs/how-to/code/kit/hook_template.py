"""The adapter of hooks: a submission defines average(parameters), which is called after each backward.

It makes the gradient of every parameter the mean over all ranks, with torch.distributed.
"""

from submission import average

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter


def wrap(module):
    import torch.distributed as dist

    for tensor in (*module.parameters(), *module.buffers()):
        dist.broadcast(tensor.detach(), 0)
    return module


adapter = torch_adapter(
    "submission",
    wrap,
    after_backward=lambda module: average(list(module.parameters())),
    capabilities=TORCH_PROMISES,
)
