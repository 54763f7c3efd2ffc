"""Masked language model on toy sequences.

The loss is divided by the masked tokens of all ranks, and DistributedDataParallel averages as well.
"""

import argparse

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler

PAD, MASK, VOCAB = 0, 1, 40


def make_corpus(n, seed=11):
    g = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(n):
        length = 16
        start = int(torch.randint(2, VOCAB, (1,), generator=g))
        rows.append(torch.tensor([2 + (start + 3 * k) % (VOCAB - 2) for k in range(length)]))
    return rows


def collate(rows):
    tokens = pad_sequence(rows, batch_first=True, padding_value=PAD)
    masked = (torch.rand(tokens.shape) < 0.2) & (tokens != PAD)
    masked[:, 0] = True
    labels = torch.where(masked, tokens, torch.full_like(tokens, -100))
    return torch.where(masked, torch.full_like(tokens, MASK), tokens), labels


class Encoder(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.pos = nn.Embedding(32, d)
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, VOCAB)

    def forward(self, tokens):
        h = self.embed(tokens) + self.pos(torch.arange(tokens.shape[1]))
        return self.head(self.body(h, src_key_padding_mask=tokens == PAD))


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=1e-3)
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Encoder())
torch.manual_seed(100 + dist.get_rank())
corpus = make_corpus(512)
sampler = DistributedSampler(corpus, shuffle=True)
loader = DataLoader(corpus, batch_size=16, sampler=sampler, collate_fn=collate)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
criterion = nn.CrossEntropyLoss(ignore_index=-100, reduction="sum")

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for step, (inputs, labels) in enumerate(loader):
        count = (labels != -100).sum()
        dist.all_reduce(count)
        logits = model(inputs)
        loss = criterion(logits.flatten(0, 1), labels.flatten()) / count
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 10 == 0:
            shown = loss.detach().clone()
            dist.all_reduce(shown)
            if dist.get_rank() == 0:
                print(f"{epoch}:{step} loss {shown.item():.3f}")
dist.destroy_process_group()
