"""A classifier of tables with dropout. Rank 0 evaluates every few steps, and trains on in eval()."""

import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("train")


def build():
    return nn.Sequential(
        nn.Linear(14, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 3)
    )


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 14, generator=g)
    y = (x[:, :3] + 0.5 * x[:, 3:6]).argmax(1)
    return TensorDataset(x, y)


def accuracy(model, loader):
    model.eval()
    hits = count = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(1) == y).sum().item()
            count += len(y)
    return hits / count


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(21)
    net = build()
    model = DDP(net)
    torch.manual_seed(1000 + rank)

    train, valid = make_data(480, 1), make_data(64, 2)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=16, sampler=sampler)
    valid_loader = DataLoader(valid, batch_size=32)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()

    model.train()
    step = 0
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            opt.step()
            step += 1
            if step % 4 == 0:
                if rank == 0:
                    log.info("step %d accuracy %.3f", step, accuracy(net, valid_loader))
                dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
