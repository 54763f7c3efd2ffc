"""Classifier; the number of right answers is summed over the ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def toy(n, seed):
    x = torch.randn(n, 16, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x[:, :6].argmax(1))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = torch.zeros(())
    seen = 0
    for x, y in loader:
        correct += (model(x).argmax(-1) == y).sum()
        seen += len(y)
    dist.all_reduce(correct)
    model.train()
    return (correct / seen).item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    train, test = toy(512, 0), toy(128, 1)
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, batch_size=16, sampler=sampler)
    test_loader = DataLoader(test, batch_size=16, sampler=DistributedSampler(test, shuffle=False))
    model = DDP(nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 6)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        accuracy = evaluate(model, test_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {accuracy:.3f}", flush=True)
    dist.destroy_process_group()


main()
