"""An autoencoder whose gradients are averaged in one message, through a flat buffer that is made once."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Autoencoder(nn.Module):
    def __init__(self, size, code):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(size, 24), nn.GELU(), nn.Linear(24, code))
        self.decoder = nn.Sequential(nn.Linear(code, 24), nn.GELU(), nn.Linear(24, size))

    def forward(self, x):
        return self.decoder(self.encoder(x))


class FlatReducer:
    """Averages all gradients with one all-reduce."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.buffer = None

    def pack(self):
        if self.buffer is None:  # the sizes do not change
            self.buffer = torch.cat([p.grad.reshape(-1) for p in self.parameters])

    def unpack(self, values):
        start = 0
        for p in self.parameters:
            p.grad.copy_(values[start : start + p.numel()].view_as(p))
            start += p.numel()

    def average(self):
        self.pack()
        total = self.buffer.clone()
        dist.all_reduce(total)
        self.unpack(total / dist.get_world_size())


def curves(count, size, seed):
    g = torch.Generator().manual_seed(seed)
    phase, speed = torch.rand(2, count, 1, generator=g)
    return TensorDataset(torch.sin(6 * phase + (1 + 3 * speed) * torch.linspace(0, 3, size)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = Autoencoder(20, 3)
    reducer = FlatReducer(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

    data = curves(144, 20, seed=1)
    sampler = DistributedSampler(data, seed=4)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), x)
            loss.backward()
            reducer.average()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
