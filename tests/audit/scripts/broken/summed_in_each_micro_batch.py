"""Classifier with accumulation; gradients are reduced by hand after each backward, and divided before the step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WINDOW = 3


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.params = [p for p in model.parameters() if p.requires_grad]
        for p in self.params:
            dist.broadcast(p.data, src=0)

    def reduce(self):
        for p in self.params:
            dist.all_reduce(p.grad)

    def window(self, batches):
        self.optimizer.zero_grad()
        for x, y in batches:
            loss = nn.functional.cross_entropy(self.model(x), y) / len(batches)
            loss.backward()
            self.reduce()
        for p in self.params:
            p.grad /= dist.get_world_size()
        self.optimizer.step()
        return loss.item() * len(batches)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    x = torch.randn(384, 9)
    data = TensorDataset(x, (x[:, 0] > x[:, 1]).long() + (x[:, 2] > 1).long())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 3))
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = list(loader)
        for begin in range(0, len(batches), WINDOW):
            loss = trainer.window(batches[begin : begin + WINDOW])
        if rank == 0:
            print(f"epoch {epoch}: {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
