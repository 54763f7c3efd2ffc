"""Data-parallel training in NumPy over any Collectives: the common part of the NumPy references.

replica.py      every rank's copy of the model: broadcast once, then gradients averaged after each backward
buckets.py      gradients in flat arrays, one message for each
overlap.py      buckets reduced on a thread during backward, and the choice whether that pays
settings.py     the options that a user may set
flat_arrays.py  many small arrays as one
sampler.py      which samples of this rank
streams.py      random numbers of this rank, and random numbers common to all ranks
metrics.py      global means of local means
scores.py       scores over the samples of all ranks that are not means
trainer.py      a whole training run with all of these; checkpoint.py writes and reads its state
facets.py       all facets of one communicator, for an adapter's connect()
promises.py     the promises that hold over any communicator
"""

from .facets import numpy_facets
from .metrics import aggregate_metrics
from .promises import PROMISES
from .sampler import DistributedSampler
from .settings import EngineSettings
from .streams import RandomStreams

__all__ = [
    "PROMISES",
    "DistributedSampler",
    "EngineSettings",
    "RandomStreams",
    "aggregate_metrics",
    "numpy_facets",
]
