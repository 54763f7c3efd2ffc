"""Fine-tune with mid-epoch checkpoints. --stop-after N stops after N steps; --resume goes on."""

import argparse
import itertools
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CKPT = Path("last.pt")


def build_data():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(320, 12, generator=g)
    w = torch.randn(12, 3, generator=g)
    return TensorDataset(x, (x @ w).argmax(1))


def save(model, opt, sched, epoch, samples_seen):
    if dist.get_rank() == 0:
        torch.save(
            {
                "model": model.module.state_dict(),
                "opt": opt.state_dict(),
                "sched": sched.state_dict(),
                "epoch": epoch,
                "samples_seen": samples_seen,
            },
            CKPT,
        )
    dist.barrier()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--stop-after", type=int, default=0)
    ap.add_argument("--resume", action="store_true")
    ap.add_argument("--batch-size", type=int, default=8)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    torch.manual_seed(1)
    data = build_data()
    sampler = DistributedSampler(data, seed=11)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 3)))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=args.epochs * len(loader))
    start_epoch, seen = 0, 0
    if args.resume and CKPT.exists():
        state = torch.load(CKPT)
        model.module.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        start_epoch, seen = state["epoch"], state["samples_seen"]
    steps = 0
    for epoch in range(start_epoch, args.epochs):
        sampler.set_epoch(epoch)
        skip = seen // args.batch_size
        for x, y in itertools.islice(loader, skip, None):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            steps += 1
            seen += args.batch_size * world
            if args.stop_after and steps == args.stop_after:
                save(model, opt, sched, epoch, seen)
                dist.destroy_process_group()
                return
        seen = 0
        save(model, opt, sched, epoch + 1, 0)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
