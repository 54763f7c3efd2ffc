"""An autoencoder whose moving average of weights is kept on every rank and evaluated on shards."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class EMA:
    def __init__(self, model, decay=0.95):
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for average, p in zip(self.shadow.parameters(), model.parameters(), strict=True):
            average.lerp_(p, 1 - self.decay)
        for average, b in zip(self.shadow.buffers(), model.buffers(), strict=True):
            average.copy_(b)


def autoencoder():
    return nn.Sequential(
        nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3),
        nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 20),
    )  # fmt: skip


def curves(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, 20)
    amplitude, phase = torch.rand(n, 1, generator=g), torch.rand(n, 1, generator=g)
    return TensorDataset(amplitude * torch.sin(6 * (t + phase)) + 0.05 * torch.randn(n, 20, generator=g))


@torch.no_grad()
def evaluate(model, loader):
    error, count = torch.zeros(()), torch.zeros(())
    for (x,) in loader:
        error += (model(x) - x).square().sum()
        count += x.numel()
    dist.all_reduce(error)
    dist.all_reduce(count)
    return (error / count).item()


def train(epochs=3, batch_size=16):
    rank = dist.get_rank()
    torch.manual_seed(4)
    net = autoencoder()
    model = DDP(net)
    ema = EMA(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data, held_out = curves(256, 1), curves(64, 2)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size, sampler=sampler)
    test_loader = DataLoader(held_out, batch_size, sampler=DistributedSampler(held_out, shuffle=False))
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            loss = nn.functional.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update(net)
        error = evaluate(ema.shadow, test_loader)
        if rank == 0:
            print(f"epoch {epoch}: error of the average {error:.4f}", flush=True)
            torch.save({"net": net.state_dict(), "ema": ema.shadow.state_dict()}, "model.pt")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
