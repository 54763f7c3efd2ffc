"""GPT with gradient accumulation under no_sync.

torchrun --nproc_per_node 2 last_micro_batch_not_synchronised.py
"""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

VOCAB, LENGTH = 20, 12


class Sequences(Dataset):
    """Arithmetic progressions modulo the vocabulary, with a few wrong characters."""

    def __init__(self, n, vocab, length, seed):
        g = torch.Generator().manual_seed(seed)
        start = torch.randint(0, vocab, (n, 1), generator=g)
        stride = torch.randint(1, 4, (n, 1), generator=g)
        self.data = (start + stride * torch.arange(length + 1)) % vocab
        wrong = torch.rand(self.data.shape, generator=g) < 0.03
        self.data[wrong] = torch.randint(0, vocab, (int(wrong.sum()),), generator=g)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i, :-1], self.data[i, 1:]


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.proj(y.transpose(1, 2).reshape(b, t, c)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    def __init__(self, vocab, length, width=32, layers=2, heads=2, dropout=0.1):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, idx):
        x = self.dropout(self.tokens(idx) + self.positions(torch.arange(idx.shape[1], device=idx.device)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def forward_backward(model, micro_batches):
    """Gradients of the mean loss over the micro-batches; communicates once."""
    total = 0.0
    for number, (x, y) in enumerate(micro_batches):
        wait = number % len(micro_batches) != 0
        with model.no_sync() if wait else contextlib.nullcontext():
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / len(micro_batches)
            loss.backward()
        total += loss.item()
    return total


def windows(loader, size):
    window = []
    for batch in loader:
        window.append(batch)
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--micro-batches", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=21)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(args.seed)
    model = DDP(GPT(VOCAB, LENGTH, dropout=0.0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    data = Sequences(216, VOCAB, LENGTH, seed=4)
    sampler = DistributedSampler(data, seed=args.seed)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, window in enumerate(windows(loader, args.micro_batches)):
            optimizer.zero_grad(set_to_none=True)
            loss = forward_backward(model, window)
            optimizer.step()
            if rank == 0:
                print(f"epoch {epoch} step {step}: {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
