"""Word vectors with sparse gradients: indices and values are gathered, then added up."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

WORDS, DIM, BATCH = 120, 16, 12


class Vectors(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Embedding(WORDS, DIM, sparse=True)
        self.proj = nn.Linear(DIM, DIM)
        self.target = nn.Linear(DIM, 10)

    def forward(self, ids):
        return self.target(torch.tanh(self.proj(self.inp(ids))))


def gather(t, world):
    out = [torch.empty_like(t) for _ in range(world)]
    dist.all_gather(out, t)
    return out


def all_reduce_gradients(model, world):
    for p in model.parameters():
        if p.grad is None:
            continue
        if p.grad.is_sparse:
            g = p.grad.coalesce()
            idx = torch.cat(gather(g.indices().contiguous(), world), 1)
            val = torch.cat(gather(g.values().contiguous(), world), 0)
            p.grad = torch.sparse_coo_tensor(idx, val / world, g.shape).coalesce()
        else:
            dist.all_reduce(p.grad)
            p.grad.div_(world)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Vectors()
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    dense = [p for n, p in model.named_parameters() if not n.startswith("inp")]
    opt_d = torch.optim.Adam(dense, lr=1e-3)
    opt_s = torch.optim.SparseAdam(list(model.inp.parameters()), lr=1e-2)
    classes = torch.randint(0, 10, (WORDS,), generator=torch.Generator().manual_seed(1))
    for epoch in range(6):
        order = torch.randperm(WORDS, generator=torch.Generator().manual_seed(epoch))
        mine = order[rank::world]
        for ids in mine.split(BATCH):
            loss = F.cross_entropy(model(ids), classes[ids])
            opt_d.zero_grad()
            opt_s.zero_grad()
            loss.backward()
            all_reduce_gradients(model, world)
            opt_d.step()
            opt_s.step()
        if rank == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
