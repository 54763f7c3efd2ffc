"""A tagger for padded sentences; gradients travel in half precision, by DDP's fp16_compress_hook."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

WORDS, LENGTH, IGNORED = 50, 14, -100


class Sentences(Dataset):
    """A word's tag depends on the word and on the one before."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.words = torch.randint(0, WORDS, (count, LENGTH), generator=g)
        before = torch.roll(self.words, 1, 1)
        self.tags = (self.words + before) % 5
        lengths = torch.randint(2, LENGTH + 1, (count,), generator=g)
        self.tags[torch.arange(LENGTH) >= lengths[:, None]] = IGNORED

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return self.words[index], self.tags[index]


class Tagger(nn.Module):
    def __init__(self, width, tags):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.mix = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, tags)

    def forward(self, words):
        return self.head(self.mix(self.words(words))[0])


def tag_loss(logits, tags):
    return F.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=IGNORED)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(6)
    model = DDP(Tagger(24, 5))
    model.register_comm_hook(None, fp16_compress_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    data = Sentences(144, seed=2)
    sampler = DistributedSampler(data, seed=8)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for words, tags in loader:
            optimizer.zero_grad()
            loss = tag_loss(model(words), tags)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
