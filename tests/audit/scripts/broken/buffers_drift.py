"""Vector-quantised autoencoder; the code book follows the encoder by a moving average."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_patches(n, features, seed):
    g = torch.Generator().manual_seed(seed)
    prototypes = torch.randn(6, features, generator=torch.Generator().manual_seed(0))
    which = torch.randint(0, 6, (n,), generator=g)
    return TensorDataset(prototypes[which] + 0.2 * torch.randn(n, features, generator=g))


class CodeBook(nn.Module):
    def __init__(self, size, width, decay=0.9):
        super().__init__()
        self.decay = decay
        codes = torch.randn(size, width)
        self.register_buffer("codes", codes)
        self.register_buffer("counts", torch.ones(size))
        self.register_buffer("sums", codes.clone())

    @torch.no_grad()
    def update(self, z, index):
        chosen = nn.functional.one_hot(index, len(self.codes)).to(z.dtype)
        counts, sums = chosen.sum(0), chosen.t() @ z
        self.counts.mul_(self.decay).add_(counts, alpha=1 - self.decay)
        self.sums.mul_(self.decay).add_(sums, alpha=1 - self.decay)
        self.codes.copy_(self.sums / (self.counts.unsqueeze(1) + 1e-5))

    def forward(self, z):
        index = torch.cdist(z.detach(), self.codes).argmin(1)
        q = self.codes[index]
        if self.training:
            self.update(z.detach(), index)
        commitment = nn.functional.mse_loss(z, q)
        return z + (q - z).detach(), commitment


class VQ(nn.Module):
    def __init__(self, features, width=8, codes=12):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, 24), nn.ReLU(), nn.Linear(24, width))
        self.book = CodeBook(codes, width)
        self.decoder = nn.Sequential(nn.Linear(width, 24), nn.ReLU(), nn.Linear(24, features))

    def forward(self, x):
        q, commitment = self.book(self.encoder(x))
        return self.decoder(q), commitment


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--beta", type=float, default=0.25)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(15)
    model = DDP(VQ(10), broadcast_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    data = make_patches(512, 10, seed=3)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            reconstruction, commitment = model(x)
            loss = nn.functional.mse_loss(reconstruction, x) + args.beta * commitment
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
