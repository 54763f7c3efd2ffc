"""JAX's collectives between processes on CPUs, over Gloo."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from ddpcheck import Adapter, Capabilities, CollectivePromises, Facets, Processes, RankContext
from ddpcheck.seeded_values import Array


class _Collectives:
    def __init__(self) -> None:
        import jax  # pyright: ignore[reportMissingImports]  # an extra

        self._mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rank",))
        self._compiled = cache(self._compile)

    def all_reduce(self, array: Array, op: str = "sum", *, group: None = None) -> Array:
        return self._run(op, array)

    def all_gather(self, array: Array, *, group: None = None) -> Array:
        return self._run("all_gather", array)

    def broadcast(self, array: Array, root: int = 0, *, group: None = None) -> Array:
        return self._run("broadcast", array, root)

    def barrier(self, *, group: None = None) -> None:
        from jax.experimental.multihost_utils import (  # pyright: ignore[reportMissingImports]
            sync_global_devices,
        )

        sync_global_devices("barrier")

    def _run(self, name: str, array: Array, root: int = 0) -> Array:
        import jax  # pyright: ignore[reportMissingImports]

        ranks = jax.sharding.NamedSharding(self._mesh, jax.sharding.PartitionSpec("rank"))
        shape = (jax.process_count(), *array.shape)
        result = self._compiled(name, root)(jax.make_array_from_process_local_data(ranks, array[None], shape))
        own: Array = np.array(result.addressable_data(0))[0]
        return own

    def _compile(self, name: str, root: int) -> Callable[[Any], Any]:
        import jax  # pyright: ignore[reportMissingImports]

        collectives: dict[str, Callable[[Any], Any]] = {
            "sum": partial(jax.lax.psum, axis_name="rank"),
            "mean": partial(jax.lax.pmean, axis_name="rank"),
            "min": partial(jax.lax.pmin, axis_name="rank"),
            "max": partial(jax.lax.pmax, axis_name="rank"),
            "all_gather": partial(jax.lax.all_gather, axis_name="rank"),
            "broadcast": lambda array: jax.lax.all_gather(array, "rank")[root],
        }
        each = jax.sharding.PartitionSpec("rank")
        mapped = jax.shard_map(
            lambda array: collectives[name](array[0])[None], mesh=self._mesh, in_specs=each, out_specs=each
        )
        compiled: Callable[[Any], Any] = jax.jit(mapped)
        return compiled


def connect(context: RankContext) -> Facets:
    import jax  # pyright: ignore[reportMissingImports]

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"{context.master_addr}:{context.master_port}", context.world_size, context.rank)
    return Facets(
        rank=jax.process_index(),
        world_size=jax.process_count(),
        collectives=_Collectives(),
        close=jax.distributed.shutdown,
    )


adapter = Adapter(
    "jax_collectives",
    connect,
    Capabilities(
        collectives=CollectivePromises(
            operations={"all_reduce", "all_gather", "broadcast", "barrier"},
            reductions={"sum", "mean", "min", "max"},
            dtypes={"float32", "float64"},
        ),
    ),
    Processes(preload=("jax",)),
    requires=("jax",),
    description="JAX collectives between processes, over Gloo",
)
