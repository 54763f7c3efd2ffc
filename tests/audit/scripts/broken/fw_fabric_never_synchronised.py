"""Fabric: synchronisation is left out for every micro-batch, also for the last one of a window."""

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WINDOW = 2


def main():
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(3)
    model = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer = fabric.setup(model, optimizer)
    g = torch.Generator().manual_seed(5)
    x = torch.randn(160, 5, generator=g)
    data = TensorDataset(x, (x @ torch.randn(5, 4, generator=g)).argmax(1))
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=5, shuffle=True))
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for number, (inputs, labels) in enumerate(loader):
            last = (number + 1) % WINDOW == 0
            with fabric.no_backward_sync(model, enabled=True):
                loss = F.cross_entropy(model(inputs), labels) / WINDOW
                fabric.backward(loss)
            if last:
                fabric.clip_gradients(model, optimizer, max_norm=1.0)
                optimizer.step()
                optimizer.zero_grad()
        fabric.print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
