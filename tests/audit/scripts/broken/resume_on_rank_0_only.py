"""MLP regression with momentum and step decay; --resume continues from the last checkpoint.

torchrun --nproc_per_node 2 resume_on_rank_0_only.py --epochs 2
torchrun --nproc_per_node 2 resume_on_rank_0_only.py --epochs 4 --resume
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_waves(n, features, seed):
    """A smooth function of a few random directions, with noise."""
    g = torch.Generator().manual_seed(seed)
    directions = torch.randn(features, 3, generator=torch.Generator().manual_seed(7)) / features**0.5
    x = torch.randn(n, features, generator=g)
    y = torch.sin(2 * x @ directions).sum(1, keepdim=True) + 0.05 * torch.randn(n, 1, generator=g)
    return TensorDataset(x, y)


def save(path, epoch, model, optimizer, scheduler):
    torch.save(
        {
            "epoch": epoch,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
        },
        path,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(90)
    net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.6)
    first = torch.zeros(1, dtype=torch.long)
    if args.resume and rank == 0:
        state = torch.load(args.checkpoint, weights_only=True)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        first += state["epoch"] + 1
    dist.broadcast(first, src=0)
    model = DDP(net)  # sends the weights of rank 0 to all

    data = make_waves(256, 6, seed=14)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(int(first), args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        scheduler.step()
        if rank == 0:
            save(args.checkpoint, epoch, net, optimizer, scheduler)
            print(f"epoch {epoch}: loss {loss.item():.4f}, lr {scheduler.get_last_lr()[0]:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
