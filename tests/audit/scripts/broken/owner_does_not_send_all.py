"""ZeRO-1 by hand: each rank steps its parameters and sends them, except those beyond the last whole round."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ShardedAdam:
    def __init__(self, params, lr):
        self.params = list(params)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.owned = self.params[self.rank :: self.world]
        self.inner = torch.optim.Adam(self.owned, lr=lr)

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for p in self.params:
            dist.all_reduce(p.grad)
            p.grad.div_(self.world)
        self.inner.step()
        rounds = len(self.params) // self.world
        for i in range(rounds):
            for owner in range(self.world):
                dist.broadcast(self.params[i * self.world + owner].data, src=owner)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.mid = nn.Linear(9, 40), nn.Linear(40, 40)
        self.out = nn.Linear(40, 3, bias=False)

    def forward(self, x):
        x = torch.relu(self.inp(x))
        return self.out(x + torch.relu(self.mid(x)))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(77)
    net = Net()
    opt = ShardedAdam(net.parameters(), lr=2e-3)
    g = torch.Generator().manual_seed(1)
    x = torch.randn(512, 9, generator=g)
    y = (x[:, :3] ** 2).argmax(1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(xb), yb)
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(epoch, f"{loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
