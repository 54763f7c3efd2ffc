"""JAX's collectives between processes on CPUs, which go over Gloo."""

from functools import cache, partial

import numpy as np

from ddpcheck import Adapter, Capabilities, CollectivePromises, Facets, Processes


class Collectives:
    def __init__(self):
        import jax

        self.mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rank",))
        self.compiled = cache(self.compiled)

    def compiled(self, kind, last):
        import jax

        each = jax.sharding.PartitionSpec("rank")
        bodies = {
            "sum": partial(jax.lax.psum, axis_name="rank"),
            "mean": partial(jax.lax.pmean, axis_name="rank"),
            "min": partial(jax.lax.pmin, axis_name="rank"),
            "max": partial(jax.lax.pmax, axis_name="rank"),
            "all_gather": partial(jax.lax.all_gather, axis_name="rank"),
            "broadcast": lambda x: jax.lax.all_gather(x, "rank")[last],
        }
        return jax.jit(jax.shard_map(lambda x: bodies[kind](x[0])[None], mesh=self.mesh, in_specs=each, out_specs=each))

    def run(self, kind, array, last=0):
        import jax

        ranks = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec("rank"))
        shape = (jax.process_count(), *array.shape)
        result = self.compiled(kind, last)(jax.make_array_from_process_local_data(ranks, array[None], shape))
        return np.array(result.addressable_data(0))[0]

    def all_reduce(self, array, op="sum", *, group=None):
        return self.run(op, array)

    def all_gather(self, array, *, group=None):
        return self.run("all_gather", array)

    def broadcast(self, array, root=0, *, group=None):
        return self.run("broadcast", array, root)

    def barrier(self, *, group=None):
        from jax.experimental.multihost_utils import sync_global_devices

        sync_global_devices("barrier")


def connect(context):
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"{context.master_addr}:{context.master_port}", context.world_size, context.rank)
    return Facets(
        rank=jax.process_index(),
        world_size=jax.process_count(),
        collectives=Collectives(),
        close=jax.distributed.shutdown,
    )


adapter = Adapter(
    "jax",
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
)
