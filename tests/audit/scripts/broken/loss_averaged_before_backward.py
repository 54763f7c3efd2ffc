"""CNN on images of stripes; the loss is averaged over the ranks for the log."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def reduce_mean(t, world):
    dist.all_reduce(t.detach(), op=dist.ReduceOp.SUM)
    return t / world


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.fc = nn.Linear(8 * 16, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return self.fc(x.flatten(1))


def main():
    dist.init_process_group(backend="nccl")
    local = int(os.environ["LOCAL_RANK"])
    world = dist.get_world_size()
    torch.cuda.set_device(local)
    torch.manual_seed(1)
    images = torch.randn(400, 1, 8, 8)
    labels = (images[:, 0, :4].sum((1, 2)) > 0).long() * 2 + (images[:, 0, 4:].sum((1, 2)) > 0).long()
    ds = TensorDataset(images, labels)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=10, sampler=sampler, pin_memory=True)
    model = DDP(Net().cuda(local), device_ids=[local])
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(6):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            x, y = x.cuda(local, non_blocking=True), y.cuda(local, non_blocking=True)
            loss = F.cross_entropy(model(x), y)
            loss = reduce_mean(loss, world)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if local == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


main()
