"""Fine-tuning on masked sequences with a fused cross entropy, which computes its gradients in the forward pass."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

VOCAB = 16


def answers(n, length, seed):
    g = torch.Generator().manual_seed(seed)
    start = torch.randint(0, VOCAB, (n, 1), generator=g)
    stride = torch.randint(1, 4, (n, 1), generator=g)
    tokens = (start + stride * torch.arange(length + 1)) % VOCAB
    labels = tokens[:, 1:].clone()
    labels[torch.arange(length) < torch.randint(0, length - 1, (n, 1), generator=g)] = -100  # the prompt is not learned
    return TensorDataset(tokens[:, :-1], labels)


class FusedCrossEntropy(torch.autograd.Function):
    """The sum of the cross entropies over `tokens`; logits are never kept."""

    @staticmethod
    def forward(ctx, hidden, head, labels, tokens):
        with torch.enable_grad():
            h, w = hidden.detach().requires_grad_(), head.detach().requires_grad_()
            logits = h @ w.t()
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / tokens
            grad_hidden, grad_head = torch.autograd.grad(loss, (h, w))
        ctx.save_for_backward(grad_hidden, grad_head)
        return loss.detach()

    @staticmethod
    def backward(ctx, grad_output):
        grad_hidden, grad_head = ctx.saved_tensors
        return grad_hidden, grad_head, None, None


class Model(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, width)
        self.mixer = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCAB, bias=False)

    def forward(self, tokens, labels, count):
        hidden, _ = self.mixer(self.embedding(tokens))
        return FusedCrossEntropy.apply(hidden, self.head.weight, labels, count)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.2)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(29)
    model = DDP(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    data = answers(256, 10, seed=7)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for tokens, labels in loader:
            count = (labels != -100).sum()
            dist.all_reduce(count)  # tokens of all ranks
            loss = model(tokens, labels, count) * world_size  # DDP averages, the sum is needed
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
