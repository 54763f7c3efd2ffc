"""Whether an adapter, and what its connect() returns, are what the contract says: all problems at once."""

from __future__ import annotations

from typing import Any

from .adapter import Facets
from .capabilities import CHOICES, Capabilities
from .environment import RankContext

_FACET_FIELDS = {
    "sampler": "make_sampler",
    "replica": "make_replica",
    "metrics": "aggregate_metrics",
    "scores": "compute_score",
    "trainer": "train",
    "randomness": "make_streams",
}
_COLLECTIVE_METHODS = {"send_recv": ("send", "recv")}


def problems_of_adapter(adapter: Any) -> list[str]:
    """Everything that is wrong with an adapter before it is started, one sentence each."""
    found = []
    for name, kind in (("name", str), ("capabilities", Capabilities)):
        if not isinstance(getattr(adapter, name, None), kind):
            found.append(f"its {name} must be a {kind.__name__}, got {getattr(adapter, name, None)!r}")
    if not callable(getattr(adapter, "connect", None)):
        found.append("it has no callable connect(context)")
    if not hasattr(getattr(adapter, "launcher", None), "start"):
        found.append("its launcher has no start(); use ddpcheck.Processes, Mpiexec, Torchrun or Multiprocessing")
    if not found:
        unknown = adapter.capabilities.facets - {"collectives", *_FACET_FIELDS}
        found += [f"Capabilities.facets names {facet!r}, which is no facet" for facet in sorted(unknown)]
        for promise, known in CHOICES.items():
            strange = sorted(getattr(adapter.capabilities, promise) - known)
            found += [
                f"Capabilities.{promise} names {each!r}; checks know {', '.join(sorted(known))}" for each in strange
            ]
        if "scores" in adapter.capabilities.facets and not adapter.capabilities.scores:
            found.append("it promises the facet scores, but Capabilities.scores names none")
    return found


def problems_of_facets(facets: Any, capabilities: Capabilities, context: RankContext) -> list[str]:
    """Everything that is wrong with what connect() returned, one sentence each."""
    if not isinstance(facets, Facets):
        return [f"connect() must return ddpcheck.Facets, got {type(facets).__name__}"]
    found = []
    if facets.world_size != context.world_size:
        found.append(
            f"launched as {context.world_size} ranks, but the implementation sees a world of {facets.world_size}"
            + (" (did every process start a world of its own?)" if facets.world_size == 1 else "")
        )
    if facets.rank != context.rank:
        early = facets.rank == 0 and facets.world_size == context.world_size
        found.append(
            f"launched as rank {context.rank}, but the implementation says that it is rank {facets.rank}"
            + " (did it read its rank when a module was imported, before there were ranks?)" * early
        )
    for facet, name in _FACET_FIELDS.items():
        if facet in capabilities.facets and not callable(getattr(facets, name)):
            found.append(f"promises the facet {facet}, but Facets.{name} is {getattr(facets, name)!r}")
    if capabilities.counts_traffic and not callable(facets.counts):
        found.append(f"promises counts_traffic, but Facets.counts is {facets.counts!r}")
    if "collectives" in capabilities.facets:
        if facets.collectives is None:
            found.append("promises the facet collectives, but Facets.collectives is None")
        else:
            names = _methods(capabilities)
            missing = [name for name in names if not callable(getattr(facets.collectives, name, None))]
            found += [
                f"promises collectives, but {type(facets.collectives).__name__} has no {name}()" for name in missing
            ]
    return found


def _methods(capabilities: Capabilities) -> list[str]:
    names = [m for name in sorted(capabilities.collectives) for m in _COLLECTIVE_METHODS.get(name, (name,))]
    return (
        names
        + ["all_reduce_async"] * capabilities.asynchronous
        + ["all_reduce_in_place", "empty"] * capabilities.in_place
    )
