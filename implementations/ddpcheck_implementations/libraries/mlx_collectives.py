"""MLX's collectives over its TCP ring, on CPUs."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from typing import Any

import numpy as np

from ddpcheck import Adapter, Capabilities, CollectivePromises, Facets, RankContext
from ddpcheck.seeded_values import Array

from ..numpy_sockets import connect as connect_sockets


class _Collectives:
    def __init__(self) -> None:
        import mlx.core as mx  # pyright: ignore[reportMissingImports]  # an extra

        self._mx = mx
        self._reductions = {
            "sum": mx.distributed.all_sum,
            "max": mx.distributed.all_max,
            "min": mx.distributed.all_min,
        }

    def all_reduce(self, array: Array, op: str = "sum", *, group: None = None) -> Array:
        return self._run(self._reductions[op], array)

    def all_gather(self, array: Array, *, group: None = None) -> Array:
        return self._run(self._mx.distributed.all_gather, array[None])

    def _run(self, collective: Any, array: Array) -> Array:
        given = self._mx.array(np.array(array, order="C"))
        return np.array(collective(given, stream=self._mx.cpu))


def connect(context: RankContext) -> Facets:
    import mlx.core as mx  # pyright: ignore[reportMissingImports]

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([[f"127.0.0.1:{port}"] for port in _ports(context)], file)
        file.flush()
        os.environ["MLX_HOSTFILE"], os.environ["MLX_RANK"] = file.name, str(context.rank)
        group = mx.distributed.init(strict=True, backend="ring")
    return Facets(rank=group.rank(), world_size=group.size(), collectives=_Collectives())


def _ports(context: RankContext) -> list[int]:
    """A free port of each rank, all of one host. MLX takes them from a file, and opens them itself."""
    facets = connect_sockets(context)
    assert facets.collectives is not None
    assert facets.close is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ports = facets.collectives.all_gather(np.array([free.getsockname()[1]]))
        facets.close()
    return [int(port) for port in ports.ravel()]


adapter = Adapter(
    "mlx_collectives",
    connect,
    Capabilities(
        collectives=CollectivePromises(
            operations={"all_reduce", "all_gather"},
            reductions={"sum", "min", "max"},
            dtypes={"float16", "float32", "int32", "int64"},
        ),
    ),
    requires=("mlx",),
    description="MLX collectives over its TCP ring",
)
