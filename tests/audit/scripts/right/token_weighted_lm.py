"""A causal language model on sentences of different lengths. The loss is a mean over the tokens of all ranks."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler

VOCAB, PAD, WIDTH, CONTEXT = 24, 0, 16, 16


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, WIDTH, padding_idx=PAD)
        self.pos = nn.Embedding(CONTEXT, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.ln = nn.LayerNorm(WIDTH)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        q, k, v = self.qkv(self.ln(x)).chunk(3, -1)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x @ self.tok.weight.t()  # tied


def sentences(n):
    g = torch.Generator().manual_seed(0)
    made = []
    for _ in range(n):
        length = int(torch.randint(3, CONTEXT, (), generator=g))
        start = int(torch.randint(1, VOCAB, (), generator=g))
        made.append(1 + (start + 3 * torch.arange(length)) % (VOCAB - 1))
    return made


def collate(batch):
    ids = pad_sequence(batch, batch_first=True, padding_value=PAD)
    labels = ids.clone()
    labels[labels == PAD] = -100
    return {"input_ids": ids, "labels": labels}


def lm_loss(logits, labels):
    logits, labels = logits[:, :-1], labels[:, 1:]
    total = F.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1), ignore_index=-100, reduction="sum")
    tokens = (labels != -100).sum()
    dist.all_reduce(tokens)
    return total / tokens * dist.get_world_size()  # DDP divides by the world size


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DDP(TinyLM())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
    data = sentences(160)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, collate_fn=collate)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = lm_loss(model(batch["input_ids"]), batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
