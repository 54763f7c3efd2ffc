"""A character model on padded lines; the evaluation averages means over tokens, of which the ranks have different numbers."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

PADDING = 0


def make_lines(n, seed):
    """Lines that count up by 1 or 2, of 4 to 12 characters, padded with zeros."""
    g = torch.Generator().manual_seed(seed)
    start = torch.randint(1, 9, (n, 1), generator=g)
    lines = start + torch.randint(1, 3, (n, 1), generator=g) * torch.arange(12)
    length = torch.randint(4, 13, (n, 1), generator=g)
    return TensorDataset(torch.where(torch.arange(12) < length, lines % 31 + 1, PADDING))


class Characters(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(32, width)
        self.mix = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 32))

    def forward(self, lines):
        return self.mix(self.embed(lines))


def summed_loss(model, lines):
    scores = model(lines[:, :-1]).flatten(0, 1)
    return nn.functional.cross_entropy(scores, lines[:, 1:].flatten(), ignore_index=PADDING, reduction="sum")


@torch.no_grad()
def evaluate(model, loader):
    total, tokens = 0.0, 0
    for (lines,) in loader:
        total += summed_loss(model, lines).item()
        tokens += int((lines[:, 1:] != PADDING).sum())
    mean = torch.tensor(total / tokens)
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(23)
    model = DDP(Characters())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    lines, held_out = make_lines(192, seed=1), make_lines(64, seed=2)
    sampler = DistributedSampler(lines)
    loader = DataLoader(lines, batch_size=8, sampler=sampler)
    other = DataLoader(held_out, batch_size=16, sampler=DistributedSampler(held_out, shuffle=False))
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            tokens = (batch[:, 1:] != PADDING).sum()
            dist.all_reduce(tokens)
            optimizer.zero_grad()
            (summed_loss(model, batch) * dist.get_world_size() / tokens).backward()
            optimizer.step()
        loss = evaluate(model.module, other)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
