"""Image classification on GPUs with autocast and a gradient scaler; batch norms cover a rank's own samples."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_images(n, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (n,), generator=g)
    patterns = torch.randn(4, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    return TensorDataset(patterns[labels] + torch.randn(n, 1, 12, 12, generator=g), labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8))
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
        self.out = nn.Linear(8 * 16, 4)

    def forward(self, x):
        x = F.relu(self.second(F.relu(self.first(x))))
        return self.out(F.max_pool2d(x, 2).flatten(1))


def main():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(3)
    model = DDP(Net().to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    images = make_images(256, seed=1)
    sampler = DistributedSampler(images)
    loader = DataLoader(images, batch_size=16, sampler=sampler, drop_last=True)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
