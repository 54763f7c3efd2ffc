"""The last wrapper: at the end of a backward the rest of the bucket is reduced."""

import torch
import torch.distributed as dist
from torch import nn

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

BUCKET_BYTES = 1 << 20


class BucketDDP(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor.detach(), src=0)
        self.bucket, self.under_way = [], []
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.collect)

    def collect(self, parameter):
        self.bucket.append(parameter)
        if sum(each.nbytes for each in self.bucket) >= BUCKET_BYTES:
            self.send()

    def send(self):
        flat = torch.cat([parameter.grad.reshape(-1) for parameter in self.bucket])
        self.under_way.append((dist.all_reduce(flat, async_op=True), flat, self.bucket))
        self.bucket = []

    def finish(self):
        """After a backward: the last bucket goes out, and the means come into place."""
        if self.bucket:
            self.send()
        for work, flat, parameters in self.under_way:
            work.wait()
            means = (flat / dist.get_world_size()).split([each.numel() for each in parameters])
            for parameter, mean in zip(parameters, means, strict=True):
                parameter.grad.copy_(mean.view_as(parameter))
        self.under_way = []

    def forward(self, *inputs):
        return self.module(*inputs)


adapter = torch_adapter(
    "hooks_4",
    BucketDDP,
    after_backward=lambda wrapped: wrapped.finish(),
    capabilities=TORCH_PROMISES.but(no_sync=False, bundles_gradients=True),
)
