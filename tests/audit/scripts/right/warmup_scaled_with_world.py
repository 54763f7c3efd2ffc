"""AdamW with clipping; the learning rate grows with the world size, after a linear warm-up, and falls by a cosine."""

import argparse
import math
import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)


def get_data(n=320):
    generator = torch.Generator().manual_seed(17)
    x = torch.randn(n, 10, generator=generator)
    w = torch.randn(10, 2, generator=generator)
    return TensorDataset(x, x @ w + 0.1 * torch.randn(n, 2, generator=generator))


def split_parameters(model, weight_decay):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=10)
    parser.add_argument("--base_lr", type=float, default=1e-3)
    parser.add_argument("--warmup_steps", type=int, default=5)
    parser.add_argument("--max_grad_norm", type=float, default=0.5)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    world_size = int(os.environ["WORLD_SIZE"])
    seed_everything(123)
    model = nn.Sequential(nn.Linear(10, 32), nn.LayerNorm(32), nn.SiLU(), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(split_parameters(model, 0.1), lr=args.base_lr * world_size)
    model = DDP(model, gradient_as_bucket_view=True)

    train_set = get_data()
    sampler = DistributedSampler(train_set, drop_last=True)
    loader = DataLoader(train_set, args.batch_size, sampler=sampler, num_workers=0)
    total_steps = args.epochs * len(loader)

    def schedule(step):
        if step < args.warmup_steps:
            return (step + 1) / args.warmup_steps
        progress = (step - args.warmup_steps) / max(1, total_steps - args.warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * progress))

    scheduler = LambdaLR(optimizer, schedule)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.smooth_l1_loss(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: lr {scheduler.get_last_lr()[0]:.2e}, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
