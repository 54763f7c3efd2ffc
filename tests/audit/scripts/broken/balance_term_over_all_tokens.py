"""Tiny mixture-of-experts language model. torchrun --nproc_per_node 2 balance_term_over_all_tokens.py"""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

VOCAB, SEQ, DIM, EXPERTS = 64, 16, 32, 4


class Corpus(Dataset):
    def __init__(self, n=256):
        g = torch.Generator().manual_seed(17)
        self.tokens = torch.randint(0, VOCAB, (n, SEQ + 1), generator=g)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        row = self.tokens[i]
        return row[:-1], row[1:]


def global_load_balance(probs, assigned, coeff, group=None):
    """Switch-style balance loss over the tokens of the whole data-parallel group."""
    tokens_per_expert = F.one_hot(assigned, EXPERTS).sum(0).float()
    dist.all_reduce(tokens_per_expert, group=group)
    total = torch.tensor(float(probs.shape[0]))
    dist.all_reduce(total, group=group)
    return coeff * EXPERTS * (probs.sum(0) * tokens_per_expert).sum() / (total * total)


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(DIM, 64), nn.GELU(), nn.Linear(64, DIM)) for _ in range(EXPERTS)
        )

    def forward(self, x):
        flat = x.reshape(-1, DIM)
        probs = self.router(flat).softmax(-1)
        gate, assigned = probs.max(-1)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            mask = (assigned == e).float().unsqueeze(-1)
            out = out + mask * expert(flat)
        out = out * gate.unsqueeze(-1)
        return x + out.view_as(x), probs, assigned


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.randn(SEQ, DIM) * 0.02)
        self.moe = MoE()
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, idx):
        x = self.emb(idx) + self.pos
        x, probs, assigned = self.moe(x)
        return self.head(self.norm(x)), probs, assigned


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--bs", type=int, default=8)
    p.add_argument("--aux", type=float, default=0.5)
    args = p.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    ds = Corpus()
    sampler = DistributedSampler(ds, shuffle=True)
    loader = DataLoader(ds, batch_size=args.bs, sampler=sampler, drop_last=True)
    model = DDP(Model())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            logits, probs, assigned = model(x)
            ce = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            aux = global_load_balance(probs, assigned, args.aux)
            loss = ce + aux
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
        if rank == 0:
            print(epoch, float(ce), float(aux))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
