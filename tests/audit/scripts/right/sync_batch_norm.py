"""A segmentation net with SyncBatchNorm, so that statistics are those of the whole batch."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def double_conv(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
        nn.Conv2d(outside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = double_conv(1, 6)
        self.pool = nn.MaxPool2d(2)
        self.bottom = double_conv(6, 12)
        self.up = nn.ConvTranspose2d(12, 6, 2, stride=2)
        self.head = nn.Sequential(double_conv(12, 6), nn.Conv2d(6, 1, 1))

    def forward(self, x):
        skip = self.down(x)
        return self.head(torch.cat([skip, self.up(self.bottom(self.pool(skip)))], 1))


def discs(n):
    g = torch.Generator().manual_seed(21)
    yy, xx = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    centre = 2 + 4 * torch.rand(n, 2, 1, 1, generator=g)
    mask = ((yy - centre[:, 0]) ** 2 + (xx - centre[:, 1]) ** 2 < 5).float().unsqueeze(1)
    return TensorDataset(mask + 0.5 * torch.randn(n, 1, 8, 8, generator=g), mask)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    args = parser.parse_args()
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl", init_method="env://")
    device = torch.device(f"cuda:{local_rank}")

    torch.manual_seed(5)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(UNet()).to(device)
    model = DistributedDataParallel(model, device_ids=[local_rank], output_device=local_rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    data = discs(96)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, args.batch_size, sampler=sampler, pin_memory=True, drop_last=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for image, mask in loader:
            image, mask = image.to(device), mask.to(device)
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(image), mask)
            loss.backward()
            optimizer.step()
        if local_rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
