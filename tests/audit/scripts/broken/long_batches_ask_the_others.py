"""Bag-of-words classifier; sentences are padded to a common length."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WORDS, USUAL = 40, 14


class Sentences(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        lengths = torch.randint(4, 15, (n,), generator=g)
        lengths[::37] += 6  # a few are long
        self.rows = [torch.randint(1, WORDS, (int(length),), generator=g) for length in lengths]
        self.labels = torch.tensor([int(row.sum()) % 3 for row in self.rows])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], self.labels[i]


def collate(samples):
    rows, labels = zip(*samples, strict=True)
    return list(rows), torch.stack(labels)


def common_length(rows):
    """Most batches fit into the usual length, so the ranks need not talk about it."""
    longest = max(len(row) for row in rows)
    if longest > USUAL:
        length = torch.tensor(longest)
        dist.all_reduce(length, op=dist.ReduceOp.MAX)
        return int(length)
    return USUAL


def padded(rows, length):
    return torch.stack([nn.functional.pad(row, (0, length - len(row))) for row in rows])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 16, padding_idx=0)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.words(x).sum(1))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = DDP(Classifier())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    data = Sentences(256, seed=8)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 8, sampler=sampler, collate_fn=collate)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for rows, labels in loader:
            loss = nn.functional.cross_entropy(model(padded(rows, common_length(rows))), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
