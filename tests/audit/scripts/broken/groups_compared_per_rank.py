"""Group-relative policy optimisation: each prompt is repeated K times, rewards are compared within the group."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Sampler

K = 4  # generations per prompt
LEN = 6
VOCAB = 20


class Prompts(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(9)
        self.p = torch.randint(0, VOCAB, (64, 5), generator=g)

    def __len__(self):
        return len(self.p)

    def __getitem__(self, i):
        return self.p[i], i


class RepeatSampler(Sampler):
    """Every prompt K times in a row, then dealt out to the ranks in turn."""

    def __init__(self, n, k, rank, world, seed):
        self.n, self.k, self.rank, self.world, self.seed, self.epoch = n, k, rank, world, seed, 0

    def set_epoch(self, e):
        self.epoch = e

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        order = [i for i in torch.randperm(self.n, generator=g).tolist() for _ in range(self.k)]
        return iter(order[self.rank :: self.world])

    def __len__(self):
        return self.n * self.k // self.world


class Policy(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.head = nn.Linear(d, VOCAB)

    def forward(self, tok):
        return self.head(self.rnn(self.emb(tok))[0])

    @torch.no_grad()
    def generate(self, prompt, n):
        seq = prompt
        for _ in range(n):
            nxt = torch.multinomial(self(seq)[:, -1].softmax(-1), 1)
            seq = torch.cat([seq, nxt], 1)
        return seq


def reward(seq):
    return (seq[:, -LEN:] % 2 == 0).float().sum(1) + 0.1 * seq[:, -1].float()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(31 + rank)
    ds = Prompts()
    sampler = RepeatSampler(len(ds), K, rank, world, seed=4)
    loader = DataLoader(ds, batch_size=8, sampler=sampler)
    policy = DDP(Policy())
    opt = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for prompt, pid in loader:
            seq = policy.module.generate(prompt, LEN)
            r = reward(seq)
            adv = torch.zeros_like(r)
            for i in pid.unique():
                m = pid == i
                adv[m] = (r[m] - r[m].mean()) / (r[m].std() + 1e-4)
            logits = policy(seq[:, :-1])[:, -LEN:]
            logp = -F.cross_entropy(logits.transpose(1, 2), seq[:, -LEN:], reduction="none")
            loss = -(adv.unsqueeze(1) * logp).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
        dist.all_reduce(mean := r.mean().clone())
        if rank == 0:
            print(epoch, float(mean) / world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
