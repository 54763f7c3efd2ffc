"""Adapters that are wrong on purpose, each with one fault.

`faults()` lists them, each with the checks that must catch it and the threads where it was seen. `unusual()` lists adapters
that are correct but unusual, which every check must pass. A decorator makes the adapter: `ddpcheck check
ddpcheck_implementations.faulty.replicas.gradient:GradSumNotMean` runs one.

    base, bucketed      correct replicas, without buckets and with them: a fault overrides a method
    facet_seams         the same for collectives, samplers, random streams, metrics and scores
    trainers            the same for whole training runs
    engine              faults without state, as rows of a table
    registry            faults by name, with their checks and causes
    star_communicator   collectives through rank 0, for faults of the rendezvous

All other packages hold faults, one package for each facet.
"""

from __future__ import annotations

import importlib
import pkgutil

from ddpcheck.running.adapter_lookup import missing_modules

from .base import PlainReplica, fault
from .registry import REGISTERED, Registered


def faults() -> tuple[Registered, ...]:
    """Every fault of every module here, module by module."""
    return tuple(found for found in _registered() if found.caught_by)


def unusual() -> tuple[Registered, ...]:
    """Every adapter here that is correct."""
    return tuple(found for found in _registered() if not found.caught_by)


def _registered() -> list[Registered]:
    """Import all modules, which registers their faults; those that need a missing package are left out."""
    for family in pkgutil.iter_modules(__path__, f"{__name__}."):
        package = importlib.import_module(family.name)
        # a package within a family is imported by a fault in its ranks
        for module in pkgutil.iter_modules(package.__path__ if family.ispkg else (), f"{family.name}."):
            if not module.ispkg:
                importlib.import_module(module.name)
    here = (found for found in REGISTERED if not missing_modules(found.adapter))
    return sorted(here, key=lambda found: found.module)


__all__ = ["PlainReplica", "Registered", "fault", "faults", "unusual"]
