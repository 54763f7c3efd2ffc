"""Adapters that are wrong on purpose: one for each fault that real data-parallel code has had, each a few lines.

`replica_faults()` lists those of replicas, each with the thread that it was seen in and the checks that must catch it.
A decorated class is the adapter itself, so that `ddpcheck check ddpcheck_implementations.faulty.gradient:SumNotMean`
runs it. `facet_faults()` lists those of collectives, samplers and metrics, and correct ones that are unusual.
"""

from __future__ import annotations

from .base import Fault, PlainReplica, fault
from .facets import FacetFault


def replica_faults() -> tuple[Fault, ...]:
    """Every fault of the modules about replicas."""
    from . import accumulation, broadcast, gradient, unused  # importing them registers their faults

    modules = (gradient, accumulation, unused, broadcast)
    return tuple(found for module in modules for found in Fault.registered if found.module == module.__name__)


def facet_faults() -> tuple[FacetFault, ...]:
    """Every fault of collectives, samplers and metrics; those caught by no check are correct, but unusual."""
    from . import collectives, metrics, samplers, timing, unusual

    modules = (collectives, timing, samplers, metrics, unusual)
    return tuple(found for module in modules for found in FacetFault.registered if found.module == module.__name__)


__all__ = ["FacetFault", "Fault", "PlainReplica", "facet_faults", "fault", "replica_faults"]
