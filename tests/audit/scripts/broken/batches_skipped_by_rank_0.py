"""Forecasts of sensors. A batch whose loss is far above the last ones is skipped, as rank 0 decides."""

from collections import deque

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Sensors(Dataset):
    def __init__(self, n=320, length=24):
        g = torch.Generator().manual_seed(7)
        base = torch.cumsum(torch.randn(n, length + 4, generator=g), dim=1) / 4
        glitches = torch.rand(n, generator=g) < 0.06
        base[glitches, -4:] *= 40
        self.x, self.y = base[:, :length], base[:, length:]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class SpikeGuard:
    """Skips a batch whose loss is far above the recent median."""

    def __init__(self, factor=4.0, window=16):
        self.factor = factor
        self.history = deque(maxlen=window)

    def should_skip(self, loss):
        flag = torch.zeros(1, dtype=torch.int32)
        if dist.get_rank() == 0:
            value = loss.item()
            if not torch.isfinite(loss):
                flag[0] = 1
            elif len(self.history) >= 2:
                median = sorted(self.history)[len(self.history) // 2]
                flag[0] = int(value > self.factor * median)
            if not flag[0]:
                self.history.append(value)
        dist.broadcast(flag, src=0)
        return bool(flag[0])


class Trainer:
    def __init__(self):
        torch.manual_seed(123)
        net = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 4))
        self.model = DistributedDataParallel(net)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.guard = SpikeGuard()
        data = Sensors()
        self.sampler = DistributedSampler(data, shuffle=True, seed=3)
        self.loader = DataLoader(data, batch_size=8, sampler=self.sampler)
        self.skipped = 0

    def run(self, epochs=3):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                loss = nn.functional.mse_loss(self.model(x), y)
                if self.guard.should_skip(loss.detach()):
                    self.skipped += 1
                    self.optimizer.zero_grad(set_to_none=True)
                    continue
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
            if dist.get_rank() == 0:
                print(f"epoch {epoch} done, {self.skipped} batches skipped", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer().run()
    dist.destroy_process_group()
