"""Audio codec; its code book follows a moving average, and is broadcast after each update so that all ranks agree."""

import argparse
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def tones(n, length, seed):
    g = torch.Generator().manual_seed(seed)
    pitch = torch.randint(1, 6, (n, 1), generator=g)
    phase = 2 * math.pi * torch.rand(n, 1, generator=g)
    time = torch.linspace(0, 1, length)
    return TensorDataset(torch.sin(2 * math.pi * pitch * time + phase) + 0.1 * torch.randn(n, length, generator=g))


class EuclideanCodebook(nn.Module):
    def __init__(self, size, width, decay=0.95, epsilon=1e-5):
        super().__init__()
        self.decay, self.epsilon = decay, epsilon
        embed = torch.randn(size, width)
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())
        self.register_buffer("cluster_size", torch.ones(size))

    @torch.no_grad()
    def learn(self, z, index):
        onehot = nn.functional.one_hot(index, len(self.embed)).to(z.dtype)
        cluster_size, embed_sum = onehot.sum(0), onehot.t() @ z
        self.cluster_size.mul_(self.decay).add_(cluster_size, alpha=1 - self.decay)
        self.embed_avg.mul_(self.decay).add_(embed_sum, alpha=1 - self.decay)
        total = self.cluster_size.sum()
        smoothed = (self.cluster_size + self.epsilon) / (total + len(self.embed) * self.epsilon) * total
        self.embed.copy_(self.embed_avg / smoothed.unsqueeze(1))
        for buffer in self.buffers():
            dist.broadcast(buffer, src=0)

    def forward(self, z):
        index = torch.cdist(z.detach(), self.embed).argmin(1)
        quantized = self.embed[index]
        if self.training:
            self.learn(z.detach(), index)
        commitment = nn.functional.mse_loss(z, quantized)
        return z + (quantized - z).detach(), commitment


class Codec(nn.Module):
    def __init__(self, length, width=6, codes=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(length, 32), nn.GELU(), nn.Linear(32, width))
        self.quantizer = EuclideanCodebook(codes, width)
        self.decoder = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, length))

    def forward(self, wave):
        quantized, commitment = self.quantizer(self.encoder(wave))
        return self.decoder(quantized), commitment


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--commitment", type=float, default=0.25)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(21)
    model = DDP(Codec(24), broadcast_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    data = tones(384, 24, seed=5)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for (wave,) in loader:
            decoded, commitment = model(wave)
            loss = nn.functional.l1_loss(decoded, wave) + args.commitment * commitment
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
