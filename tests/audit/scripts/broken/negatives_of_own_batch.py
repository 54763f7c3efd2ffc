"""Retrieval: a query and its answer belong together, all other answers of the batch are negatives.

torchrun --nproc_per_node 2 negatives_of_own_batch.py
"""

import argparse

import torch
import torch.distributed as dist
import torch.distributed.nn.functional
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Questions(Dataset):
    """A hidden point, seen by two matrices."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        hidden = torch.randn(n, 5, generator=g)
        self.queries = hidden @ torch.randn(5, 12, generator=g) + 0.2 * torch.randn(n, 12, generator=g)
        self.answers = hidden @ torch.randn(5, 9, generator=g) + 0.2 * torch.randn(n, 9, generator=g)

    def __len__(self):
        return len(self.queries)

    def __getitem__(self, i):
        return self.queries[i], self.answers[i]


class Encoders(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, width))
        self.answer = nn.Sequential(nn.Linear(9, 32), nn.GELU(), nn.Linear(32, width))

    def forward(self, queries, answers):
        return F.normalize(self.query(queries), dim=1), F.normalize(self.answer(answers), dim=1)


def everyone(x):
    return torch.cat(torch.distributed.nn.functional.all_gather(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--temperature", type=float, default=0.2)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = DDP(Encoders())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = Questions(320, seed=5)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for queries, answers in loader:
            q, a = model(queries, answers)
            loss = F.cross_entropy(q @ a.t() / args.temperature, torch.arange(len(q)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
