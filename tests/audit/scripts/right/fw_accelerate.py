"""Accelerate: accumulation by accelerator.accumulate, which divides the loss and leaves out synchronisation; clipping."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def texts(count, length=12, words=40):
    g = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, words, (count, length), generator=g)
    return TensorDataset(tokens, (tokens.sum(1) % 3))


class Classifier(nn.Module):
    def __init__(self, words=40, width=16):
        super().__init__()
        self.words = nn.EmbeddingBag(words, width)
        self.head = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, 3))

    def forward(self, tokens):
        return self.head(self.words(tokens))


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(4)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(texts(160), batch_size=5, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(2):
        for tokens, labels in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(tokens), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: {loss.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
