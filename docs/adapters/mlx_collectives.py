"""MLX's collectives over its TCP ring, on CPUs."""

import json
import os
import socket
import tempfile
import time
from multiprocessing.connection import Client, Listener

import numpy as np

from ddpcheck import Adapter, Capabilities, CollectivePromises, Facets


class Collectives:
    def __init__(self):
        import mlx.core as mx

        self.mx = mx

    def run(self, collective, array):
        given = self.mx.array(np.array(array, order="C"))
        return np.array(collective(given, stream=self.mx.cpu))

    def all_reduce(self, array, op="sum", *, group=None):
        ring = self.mx.distributed
        return self.run({"sum": ring.all_sum, "max": ring.all_max, "min": ring.all_min}[op], array)

    def all_gather(self, array, *, group=None):
        return self.run(self.mx.distributed.all_gather, array[None])


def exchanged(context, own):
    """What every rank gives, in their order: rank 0 collects it at MASTER_PORT."""
    place = (context.master_addr, context.master_port)
    if context.rank:
        while True:
            try:
                with Client(place) as link:
                    link.send((context.rank, own))
                    return link.recv()
            except ConnectionRefusedError:
                time.sleep(0.01)
    with Listener(place, backlog=64) as listener:
        links = [listener.accept() for _ in range(1, context.world_size)]
    given = dict([(0, own), *(link.recv() for link in links)])
    for link in links:
        link.send(given)
        link.close()
    return given


def connect(context):
    import mlx.core as mx

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    hosts = exchanged(context, address)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([[hosts[rank]] for rank in sorted(hosts)], file)
        file.flush()
        os.environ["MLX_HOSTFILE"], os.environ["MLX_RANK"] = file.name, str(context.rank)
        group = mx.distributed.init(strict=True, backend="ring")
    return Facets(rank=group.rank(), world_size=group.size(), collectives=Collectives())


adapter = Adapter(
    "mlx",
    connect,
    Capabilities(
        collectives=CollectivePromises(
            operations={"all_reduce", "all_gather"},
            reductions={"sum", "min", "max"},
            dtypes={"float16", "float32", "int32", "int64"},
        ),
    ),
    requires=("mlx",),
)
