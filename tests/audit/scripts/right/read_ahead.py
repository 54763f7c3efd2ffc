"""A loader that reads one batch ahead of training, with accumulation, and clipping whose arguments have names."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WINDOW = 2


class Prefetcher:
    """Holds the next batch while the current one is trained on, as those that copy to a device do."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        batches = iter(self.loader)
        ahead = next(batches, None)
        while ahead is not None:
            batch, ahead = ahead, next(batches, None)
            yield batch


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(160, 8)
    data = TensorDataset(x, (x @ torch.randn(8, 4)).argmax(1))
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=10, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for number, (inputs, labels) in enumerate(Prefetcher(loader)):
            loss = F.cross_entropy(model(inputs), labels) / WINDOW
            loss.backward()
            if (number + 1) % WINDOW == 0:
                torch.nn.utils.clip_grad_value_(model.parameters(), clip_value=1.0)
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0, norm_type=2)
                optimizer.step()
                optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
