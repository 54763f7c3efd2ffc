"""Segmentation with a Dice loss whose sums are those of the batches of all ranks."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def squares(n, size, seed):
    g = torch.Generator().manual_seed(seed)
    corner = torch.randint(0, size - 4, (n, 2), generator=g)
    place = torch.arange(size)
    inside = (place >= corner[..., None]) & (place < corner[..., None] + 4)
    mask = (inside[:, 0, :, None] & inside[:, 1, None, :]).float()[:, None]
    return TensorDataset(mask + 0.5 * torch.randn(mask.shape, generator=g), mask)


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        total = value.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


def dice(logits, mask):
    probability = logits.sigmoid()
    overlap = SumOverRanks.apply((probability * mask).sum())
    sizes = SumOverRanks.apply((probability + mask).sum())
    return 1 - 2 * overlap / sizes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(37)
    model = DDP(nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.GELU(), nn.Conv2d(6, 1, 3, padding=1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    data = squares(256, 12, seed=11)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for image, mask in loader:
            loss = dice(model(image), mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
