"""Ratings by matrix factorisation. The sampler drops the remainder; gradients are averaged by hand."""

import argparse
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

log = logging.getLogger("ratings")


class Ratings(Dataset):
    def __init__(self, users, items, count):
        g = torch.Generator().manual_seed(77)
        taste, kind = torch.randn(users, 3, generator=g), torch.randn(items, 3, generator=g)
        self.user = torch.randint(users, (count,), generator=g)
        self.item = torch.randint(items, (count,), generator=g)
        self.rating = (taste[self.user] * kind[self.item]).sum(1)

    def __len__(self):
        return len(self.rating)

    def __getitem__(self, i):
        return {"user": self.user[i], "item": self.item[i], "rating": self.rating[i]}


class Factors(nn.Module):
    def __init__(self, users, items, rank=4):
        super().__init__()
        self.user, self.item = nn.Embedding(users, rank), nn.Embedding(items, rank)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, batch):
        return (self.user(batch["user"]) * self.item(batch["item"])).sum(1) + self.bias


def average_gradients(model):
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    flat /= dist.get_world_size()
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.5)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    model = Factors(40, 30)
    for p in model.parameters():  # no seed: rank 0 decides
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=args.lr)
    data = Ratings(40, 30, 1001)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True, seed=2024)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = (model(batch) - batch["rating"]).pow(2).mean()
            model.zero_grad()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        mean = loss.detach().clone()
        dist.reduce(mean, dst=0)
        if dist.get_rank() == 0:
            log.info("epoch %d: last loss %.4f", epoch, mean.item() / dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
