"""Trainer class with a cosine schedule by epoch and a log on rank 0."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model, loader, opt, sched, save_every):
        self.rank = int(os.environ["RANK"])
        self.model = DDP(model)
        self.loader, self.opt, self.sched, self.save_every = loader, opt, sched, save_every

    def _batch(self, x, y):
        self.opt.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.opt.step()
        return loss.item()

    def _log(self, epoch, losses):
        if self.rank != 0:
            return
        self.sched.step()
        print(f"epoch {epoch} | loss {sum(losses) / len(losses):.4f} | lr {self.sched.get_last_lr()[0]:.5f}")

    def train(self, epochs):
        for epoch in range(epochs):
            self.loader.sampler.set_epoch(epoch)
            losses = [self._batch(x, y) for x, y in self.loader]
            self._log(epoch, losses)
            if self.rank == 0 and epoch % self.save_every == 0:
                torch.save(self.model.module.state_dict(), "model.pt")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch_size", type=int, default=16)
    a = p.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(384, 10)
    ds = TensorDataset(x, (x[:, 0] + x[:, 1] > 0).long())
    loader = DataLoader(ds, a.batch_size, sampler=DistributedSampler(ds))
    net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=a.epochs)
    Trainer(net, loader, opt, sched, 2).train(a.epochs)
    dist.destroy_process_group()
