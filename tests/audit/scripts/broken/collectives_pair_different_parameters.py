"""Multi-task MLP: each batch belongs to one of three tasks with a head of its own."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Tasks(Dataset):
    """Sample i belongs to task (i // group) % 3; each task is another linear rule on the same inputs."""

    def __init__(self, n, features, group, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, features, generator=g)
        self.task = torch.arange(n) // group % 3
        rules = torch.randn(3, features, generator=torch.Generator().manual_seed(1))
        self.y = (self.x * rules[self.task]).sum(1, keepdim=True).tanh()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i], self.task[i]


class WholeBatches(Sampler):
    """Shuffles batches of one task each and deals them to the ranks."""

    def __init__(self, n, size, rank, world):
        self.starts, self.size, self.rank, self.world, self.epoch = range(0, n, size), size, rank, world, 0

    def __len__(self):
        return len(self.starts) // self.world

    def __iter__(self):
        g = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(len(self.starts), generator=g).tolist()
        for k in order[self.rank : len(self) * self.world : self.world]:
            yield list(range(self.starts[k], self.starts[k] + self.size))


class MultiTask(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(features, hidden), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(hidden, 1) for _ in range(3))

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))


def reduce_gradients(model, world):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad.div_(world)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(2)
    model = MultiTask(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    data = Tasks(36 * args.batch_size, 8, args.batch_size, seed=4)
    batches = WholeBatches(len(data), args.batch_size, rank, world)
    loader = DataLoader(data, batch_sampler=batches)
    for epoch in range(args.epochs):
        batches.epoch = epoch
        total = torch.zeros(2)
        for x, y, task in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.mse_loss(model(x, int(task[0])), y)
            loss.backward()
            reduce_gradients(model, world)
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {(total[0] / total[1]).item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
