"""OneCycleLR over all epochs, whose steps are counted by the whole data set."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch_size", type=int, default=32)
    p.add_argument("--max_lr", type=float, default=1e-2)
    return p.parse_args()


def get_dataset():
    g = torch.Generator().manual_seed(0)
    x = torch.rand(1024, 12, generator=g)
    y = (x[:, 0] * x[:, 1] + x[:, 2].square()).unsqueeze(1)
    return TensorDataset(x, y)


def main():
    args = get_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    dataset = get_dataset()
    sampler = DistributedSampler(dataset, drop_last=True)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = DDP(nn.Sequential(nn.Linear(12, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.max_lr)
    steps_per_epoch = len(dataset) // args.batch_size
    scheduler = OneCycleLR(optimizer, max_lr=args.max_lr, total_steps=args.epochs * steps_per_epoch, pct_start=0.3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        running = torch.zeros(1)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            running += loss.detach()
        dist.all_reduce(running)
        if dist.get_rank() == 0:
            mean = running.item() / len(loader) / dist.get_world_size()
            print(f"epoch {epoch} train mse {mean:.5f} lr {scheduler.get_last_lr()[0]:.2e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
