"""What overhead.py compares the harness with: torch or mpi4py, a clock, and nothing else of ddpcheck.

A rank waits for a line from the driver ("step 20" or "65536 20": what, and how often), and answers with the seconds of each.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def ddp_step() -> tuple[int, Callable[[], object], Callable[[], object]]:
    """Rank, what comes before the clock, and one step of step_cases' small model."""
    import torch
    from torch import distributed, nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    module = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    model = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.5)
    inputs, labels = torch.randn(64, 784), torch.randint(10, (64,))

    def step() -> None:
        optimizer.zero_grad()
        loss: Any = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()

    return distributed.get_rank(), lambda: None, step


def mpi_all_reduce(count: int) -> tuple[int, Callable[[], object], Callable[[], object]]:
    """Rank, a barrier, and an all-reduce in place of so many float32."""
    from mpi4py import MPI

    comm, array = MPI.COMM_WORLD, np.ones(count, np.float32)
    return comm.Get_rank(), comm.Barrier, lambda: comm.Allreduce(MPI.IN_PLACE, array)


def main() -> None:
    host, port = os.environ["BARE_DRIVER"].split(":")
    what = os.environ["BARE_WHAT"]
    rank, meet, call = ddp_step() if what == "step" else mpi_all_reduce(int(what) // 4)
    clock = time.monotonic
    with socket.create_connection((host, int(port))) as channel, channel.makefile("rw") as driver:
        _tell(driver, rank)
        for line in driver:
            warmups, iterations = map(int, line.split())
            begin, end = [0.0] * iterations, [0.0] * iterations
            for iteration in range(-warmups, iterations):
                meet()
                entered = clock()
                call()
                left = clock()
                if iteration >= 0:
                    begin[iteration], end[iteration] = entered, left
            _tell(driver, [begin, end])


def _tell(driver: Any, value: object) -> None:
    driver.write(json.dumps(value) + "\n")
    driver.flush()


if __name__ == "__main__":
    main()
