"""Classifier of noisy digits. One branch accumulates, the other one steps."""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def digits(n, seed):
    g = torch.Generator().manual_seed(seed)
    shapes = torch.rand(10, 64, generator=torch.Generator().manual_seed(1))
    y = torch.randint(0, 10, (n,), generator=g)
    return TensorDataset(shapes[y] + 0.2 * torch.randn(n, 64, generator=g), y)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--accum", type=int, default=2)
    a = ap.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DDP(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train = digits(208, seed=2)  # 13 batches for each of two ranks
    sampler = DistributedSampler(train, shuffle=True, seed=3)
    loader = DataLoader(train, a.batch_size, sampler=sampler)
    for epoch in range(a.epochs):
        sampler.set_epoch(epoch)
        for i, (xb, yb) in enumerate(loader):
            size = a.accum
            if (i + 1) % a.accum:
                with model.no_sync():
                    loss = F.cross_entropy(model(xb), yb) / size
                    loss.backward()
            else:
                loss = F.cross_entropy(model(xb), yb) / size
                loss.backward()
                opt.step()
                opt.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item() * size:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
