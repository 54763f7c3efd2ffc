"""Regression whose module keeps an average of its losses in a buffer, for the log, on each rank; samples are noisy anew."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Noisy(Dataset):
    def __init__(self, n, rank):
        g = torch.Generator().manual_seed(6)
        self.x = torch.randn(n, 8, generator=g)
        self.y = self.x[:, :2].prod(1, keepdim=True)
        self.noise = torch.Generator().manual_seed(100 + rank)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + 0.05 * torch.randn(8, generator=self.noise), self.y[i]


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 1))
        self.register_buffer("average", torch.zeros(1))

    def forward(self, x, y):
        loss = nn.functional.mse_loss(self.net(x), y)
        self.average = 0.9 * self.average + 0.1 * loss.detach()
        return loss


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data, valid = Noisy(256, rank), Noisy(64, 0)
    sampler, valid_sampler = DistributedSampler(data), DistributedSampler(valid, shuffle=False)
    loader = DataLoader(data, 16, sampler=sampler)
    valid_loader = DataLoader(valid, 16, sampler=valid_sampler)
    model = DDP(Regressor())
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            model(x, y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            total = sum(model(x, y) * len(x) for x, y in valid_loader)
        model.train()
        dist.all_reduce(total)
        schedule.step(total.item() / len(valid))
        average = model.module.average.clone()
        dist.reduce(average, dst=0)
        if rank == 0:
            print(f"epoch {epoch}: {total.item() / len(valid):.4f}, training {average.item() / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
