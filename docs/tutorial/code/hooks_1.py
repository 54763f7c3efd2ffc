"""A first wrapper: a hook sums each gradient over the ranks as soon as it is there."""

import torch.distributed as dist
from torch import nn

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter


class HookDDP(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.synchronise)

    def synchronise(self, parameter):
        dist.all_reduce(parameter.grad)

    def forward(self, *inputs):
        return self.module(*inputs)


adapter = torch_adapter("hooks_1", HookDDP, capabilities=TORCH_PROMISES.but(no_sync=False))
