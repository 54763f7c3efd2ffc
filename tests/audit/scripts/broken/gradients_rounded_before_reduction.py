"""Character model; gradients are reduced in one flat buffer, in a short form.

torchrun --nproc_per_node 2 gradients_rounded_before_reduction.py
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def shifted_text(n, length, seed):
    """The next character is the sum of the last two."""
    text = torch.randint(0, 17, (n, length), generator=torch.Generator().manual_seed(seed))
    for place in range(2, length):
        text[:, place] = (text[:, place - 1] + text[:, place - 2]) % 17
    return TensorDataset(text[:, :-1], text[:, 1:])


class NextCharacter(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.embedding = nn.Embedding(17, width)
        self.mix = nn.Linear(2 * width, width)
        self.out = nn.Linear(width, 17)

    def forward(self, text):
        x = self.embedding(text)
        before = F.pad(x, (0, 0, 1, 0))[:, :-1]
        return self.out(torch.relu(self.mix(torch.cat([x, before], -1))))


def reduce_gradients(model, steps=15):
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.view(-1) for g in grads])
    unit = flat.abs().max() / steps
    flat = torch.round(flat / unit) * unit
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for g, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
        g.copy_(part.view_as(g))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = NextCharacter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    data = shifted_text(256, 12, seed=3)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for text, following in loader:
            loss = F.cross_entropy(model(text).flatten(0, 1), following.flatten())
            optimizer.zero_grad()
            loss.backward()
            reduce_gradients(model)
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
