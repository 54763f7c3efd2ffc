"""A classifier with dropout: one seed for the weights, then one for each rank."""

import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


class Mixer(nn.Module):
    def __init__(self, tokens=6, width=16, classes=3, p=0.2):
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.attention = nn.MultiheadAttention(width, 2, dropout=p, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Dropout(p), nn.Linear(32, width), nn.Dropout(p))
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        x = self.embed(x)
        h = self.n1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        x = x + self.ff(self.n2(x))
        return self.out(x.mean(1))


def make_dataset(n=300):
    g = torch.Generator().manual_seed(6)
    x = torch.randn(n, 6, 4, generator=g)
    return TensorDataset(x, x[:, :, :3].sum(1).argmax(1))


class Config:
    seed = 1234
    epochs = 2
    batch_size = 8
    lr = 2e-3


def main(config):
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    set_seed(config.seed)
    train_set, test_set = random_split(make_dataset(), [256, 44])
    model = DDP(Mixer())
    set_seed(config.seed + rank)
    sampler = DistributedSampler(train_set, shuffle=True, seed=config.seed)
    loader = DataLoader(train_set, config.batch_size, sampler=sampler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    for epoch in range(config.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.05)
            loss.backward()
            optimizer.step()
        if rank == 0:  # the whole test set on one rank, without the wrapper
            model.eval()
            with torch.no_grad():
                right = sum((model.module(x).argmax(1) == y).sum().item() for x, y in DataLoader(test_set, 44))
            print(f"epoch {epoch}: {right}/{len(test_set)} right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
