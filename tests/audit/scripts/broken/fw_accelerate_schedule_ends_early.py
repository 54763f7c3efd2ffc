"""Accelerate steps a prepared schedule once for each rank, and the schedule counts the batches of one rank."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 4


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(42)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(400, 12, generator=generator)
    loader = DataLoader(TensorDataset(x, (x.mean(1) > 0).long()), batch_size=20, shuffle=True)
    model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    total = EPOCHS * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(1 - step / total, 0.0))
    schedule = accelerator.prepare(schedule)
    for epoch in range(EPOCHS):
        for batch, labels in loader:
            loss = nn.functional.cross_entropy(model(batch), labels)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch} loss {loss.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
