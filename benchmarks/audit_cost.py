"""Processor seconds and seconds of an audit: a GPT with 10 million parameters, 2 ranks, 6 compared steps.

    python benchmarks/audit_cost.py
    python benchmarks/audit_cost.py --recorder        # a step without the recorder, in audited steps, and after them

Processor time is that of all processes of the audit, so that it also means something on a machine with other work.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ddpcheck.audit.request import Request
from ddpcheck.audit.script_kinds import kind_of
from ddpcheck.audit.script_runs import audited, real_run

SCRIPT = """
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH, LAYERS, LENGTH, WORDS = 320, 8, 32, 512


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        made = self.layers(self.words(tokens) + self.places.weight, mask=mask, is_causal=True)
        return made @ self.words.weight.T


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Gpt())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randint(0, WORDS, (8 * int(sys.argv[1]), LENGTH)))
times = []
sampler = DistributedSampler(data)
for (tokens,) in DataLoader(data, batch_size=4, sampler=sampler):
    loss = F.cross_entropy(model(tokens)[:, :-1].reshape(-1, WORDS), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    times.append(time.process_time())
if len(sys.argv) > 2:
    with open(f"{sys.argv[2]}-{dist.get_rank()}", "w") as file:
        file.write(" ".join(map(str, times)))
dist.destroy_process_group()
"""
STEPS, AUDITED, REPEATS = 12, 6, 2


def recorder() -> None:
    """Medians over steps, ranks and interleaved runs, without the first step and the step after the audited ones."""
    found: dict[str, list[float]] = {"without": [], "audited": [], "after": []}
    with tempfile.TemporaryDirectory() as name:
        script = Path(name) / "train.py"
        script.write_text(SCRIPT, encoding="utf-8")
        for _ in range(REPEATS):
            words = (str(script), str(STEPS), f"{name}/without")
            subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words],
                cwd=name, capture_output=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            request = Request((str(script), str(STEPS), f"{name}/recorded"), steps=AUDITED, seconds=86400)
            with audited() as folder:
                real_run(request, kind_of(request.script), folder)
            for rank in range(2):
                found["without"] += _steps(f"{name}/without-{rank}")
                recorded = _steps(f"{name}/recorded-{rank}")
                found["audited"] += recorded[: AUDITED - 1]
                found["after"] += recorded[AUDITED:]
    once = statistics.median(found["without"])
    for kind, seconds in found.items():
        middle = statistics.median(seconds)
        print(f"{kind:<8} {middle:.3f} s of processor time for a step of a rank, {middle / once:.2f} times")


def _steps(file: str) -> list[float]:
    times = [float(each) for each in Path(file).read_text(encoding="utf-8").split()]
    return [after - before for before, after in itertools.pairwise(times)]


def main() -> None:
    if sys.argv[1:] == ["--recorder"]:
        recorder()
        return
    with tempfile.TemporaryDirectory() as name:
        script = Path(name) / "train.py"
        script.write_text(SCRIPT, encoding="utf-8")
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "ddpcheck", "audit", *sys.argv[1:], str(script), "10"],
            cwd=name, capture_output=True, text=True, check=False,
        )  # fmt: skip
        seconds = time.monotonic() - began
    spent = os.times()
    lines = done.stdout.splitlines() or [done.stderr]
    print(lines[0].replace(str(script), "train.py"), lines[-1], sep="\n")
    processor = spent.children_user + spent.children_system
    print(f"{seconds:.0f} s; {processor:.0f} s of processor time ({spent.children_system:.0f} s of it in the system)")


if __name__ == "__main__":
    main()
