"""Classifier whose checkpoints may be taken within an epoch; a resumed run restores random states and skips what was seen."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler, TensorDataset


class ShardedShuffle(Sampler):
    """One permutation for all ranks, from torch's generator, which all ranks seed alike."""

    def __init__(self, length, rank, world):
        self.length, self.rank, self.world = length, rank, world

    def __len__(self):
        return self.length // self.world

    def __iter__(self):
        yield from torch.randperm(self.length)[self.rank :: self.world].tolist()


def spirals(n, seed):
    g = torch.Generator().manual_seed(seed)
    arm = torch.randint(0, 3, (n,), generator=g)
    radius = torch.rand(n, generator=g)
    angle = 4 * radius + 2.1 * arm + 0.1 * torch.randn(n, generator=g)
    return TensorDataset(torch.stack([radius * angle.sin(), radius * angle.cos()], 1), arm)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--stop-at", type=int, help="save a checkpoint after this many steps, and stop")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--checkpoint", type=Path, default="state.pt")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(13)
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    loader = DataLoader(data := spirals(160, seed=3), 8, sampler=ShardedShuffle(len(data), rank, world))
    done = 0
    if args.resume:
        state = torch.load(args.checkpoint)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        done = state["step"]
    model = DDP(net)

    first, skip = divmod(done, len(loader))
    step = first * len(loader)
    for epoch in range(first, args.epochs):
        for number, (x, arm) in enumerate(loader):
            if epoch == first and number < skip:
                step += 1
                continue
            loss = nn.functional.cross_entropy(model(x), arm)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.stop_at:
                break
        if step == args.stop_at:
            break
    if rank == 0:
        rng = torch.get_rng_state()
        torch.save(
            {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "rng": rng, "step": step}, args.checkpoint
        )
        print(f"step {step}: loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
