"""Rank 0 writes checkpoints; a resumed run takes model, optimizer, schedule and step from the last one on every rank."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def sequences(n, length=12):
    g = torch.Generator().manual_seed(31)
    x = torch.randn(n, length, 2, generator=g)
    return TensorDataset(x, (x[..., 0] * x[..., 1]).sum(1, keepdim=True))


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(2, 12, batch_first=True)
        self.out = nn.Linear(12, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


def save_checkpoint(path, epoch, model, optimizer, scheduler):
    if dist.get_rank() == 0:
        state = {
            "epoch": epoch,
            "model": model.module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
        }
        temporary = path.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(path)
    dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--checkpoint", type=Path, default="last.pt")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(8)
    model = DDP(Regressor())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    start = 0
    if args.resume and args.checkpoint.is_file():
        state = torch.load(args.checkpoint, map_location="cpu")
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        start = state["epoch"] + 1
    data = sequences(128)
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    for epoch in range(start, args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        save_checkpoint(args.checkpoint, epoch, model, optimizer, scheduler)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
