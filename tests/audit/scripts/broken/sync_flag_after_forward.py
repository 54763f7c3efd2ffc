"""A character model with accumulated micro-batches: the last one is to synchronise, as its flag is set before backward."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

TEXT = "every rank reads a part of the text, and all ranks take one step together. " * 12
LENGTH, MICRO_BATCHES = 16, 3


class Characters(nn.Module):
    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, 24)
        self.context = nn.GRU(24, 32, batch_first=True)
        self.following = nn.Linear(32, letters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.context(self.letters(text))
        return self.following(hidden)


def windows() -> TensorDataset:
    letters = sorted(set(TEXT))
    numbers = torch.tensor([letters.index(each) for each in TEXT])
    pieces = numbers.unfold(0, LENGTH + 1, 8)
    return TensorDataset(pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous())


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    data = windows()
    sampler = DistributedSampler(data, seed=1, drop_last=True)
    loader = DataLoader(data, batch_size=3, sampler=sampler, drop_last=True)
    model = DDP(Characters(len(set(TEXT))))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, (text, following) in enumerate(loader):
            last = number % MICRO_BATCHES == MICRO_BATCHES - 1
            loss = F.cross_entropy(model(text).flatten(0, 1), following.flatten()) / MICRO_BATCHES
            model.require_backward_grad_sync = last
            loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item() * MICRO_BATCHES:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
