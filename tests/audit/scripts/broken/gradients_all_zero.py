"""A linear model on random points, as in an introduction to multi-GPU training."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class RandomPoints(Dataset):
    def __init__(self, size, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.rand(size, 20, generator=g)
        self.y = (self.x[:, :1] > 0.5).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Trainer:
    def __init__(self, model, train_data, optimizer, gpu, save_every):
        self.gpu = gpu
        self.model = DDP(model.to(gpu), device_ids=[gpu])
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        output = self.model(source)
        loss = F.cross_entropy(output, targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        size = len(next(iter(self.train_data))[0])
        if self.gpu == 0:
            print(f"epoch {epoch} | batch size {size} | steps {len(self.train_data)}", flush=True)
        for source, targets in self.train_data:
            self._run_batch(source.to(self.gpu), targets.to(self.gpu))

    def _save_checkpoint(self, epoch):
        torch.save(self.model.module.state_dict(), "checkpoint.pt")
        print(f"epoch {epoch} | checkpoint saved", flush=True)

    def train(self, epochs):
        for epoch in range(epochs):
            self._run_epoch(epoch)
            if self.gpu == 0 and epoch % self.save_every == 0:
                self._save_checkpoint(epoch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()

    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl")
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = RandomPoints(512)
    loader = DataLoader(
        data, batch_size=args.batch_size, pin_memory=True, shuffle=False, sampler=DistributedSampler(data)
    )
    Trainer(model, loader, optimizer, local_rank, args.save_every).train(args.epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.set_start_method("spawn", force=True)
    main()
