"""MLP with a checkpoint after each epoch, and the option to go on from it."""

import argparse
import math
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_blobs(n, features, classes, seed):
    """Gaussian clusters on a circle in the first two features; the others are noise."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (n,), generator=g)
    angle = labels * (2 * math.pi / classes)
    x = 0.6 * torch.randn(n, features, generator=g)
    x[:, 0] += 2 * torch.cos(angle)
    x[:, 1] += 2 * torch.sin(angle)
    return TensorDataset(x, labels)


class Checkpointer:
    def __init__(self, folder, keep=2):
        self.folder, self.keep = Path(folder), keep
        self.folder.mkdir(parents=True, exist_ok=True)

    def save(self, epoch, model, optimizer):
        state = {"epoch": epoch, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, self.folder / f"epoch{epoch}.pt")
        torch.save(state, self.folder / "last.pt")
        for old in sorted(self.folder.glob("epoch*.pt"))[: -self.keep]:
            old.unlink(missing_ok=True)

    def load(self, model, optimizer):
        path = self.folder / "last.pt"
        if not path.exists():
            return 0
        state = torch.load(path, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return state["epoch"] + 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--output", default="checkpoints")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(44)
    model = DDP(nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    checkpoints = Checkpointer(args.output)
    first = checkpoints.load(model, optimizer) if args.resume else 0
    data = make_blobs(256, 5, 4, seed=12)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler)

    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        checkpoints.save(epoch, model, optimizer)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
