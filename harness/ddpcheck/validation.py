"""Whether an adapter, and what its connect() returns, are what the contract says: all problems at once."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .adapter import Facets
from .capabilities import Capabilities
from .causes import Cause
from .causes import lifecycle as causes
from .choices import CHOICES
from .environment import RankContext

_FACET_FIELDS = {
    "sampler": "make_sampler",
    "replica": "make_replica",
    "metrics": "aggregate_metrics",
    "scores": "compute_score",
    "trainer": "train",
    "randomness": "make_streams",
}
_OR_LESS = "; hand it out, or take it out of Capabilities(facets=...), which is replica if nothing is said"
_COLLECTIVE_METHODS = {"send_recv": ("send", "recv")}


def problems_of_adapter(adapter: Any) -> list[str]:
    """Everything that is wrong with an adapter before it is started, one sentence each."""
    if isinstance(adapter, type) or not hasattr(adapter, "capabilities"):
        return [f"it is {_kind(adapter)}, but should be an Adapter, assigned to a name at module level"]
    found = []
    for name, kind in (("name", str), ("capabilities", Capabilities)):
        if not isinstance(getattr(adapter, name, None), kind):
            found.append(f"its {name} must be a {kind.__name__}, got {getattr(adapter, name, None)!r}")
    connect = getattr(adapter, "connect", None)
    if not callable(connect):
        found.append("it has no callable connect(context)")
    elif not _takes_one(connect):
        found.append(f"its connect is called as connect(context), but takes {inspect.signature(connect)}")
    if not hasattr(getattr(adapter, "launcher", None), "start"):
        found.append("its launcher has no start(); use ddpcheck.Processes, Mpiexec, Torchrun or Multiprocessing")
    if not found:
        found += _misfits(adapter.capabilities)
    if not found:
        unknown = adapter.capabilities.facets - {"collectives", *_FACET_FIELDS}
        found += [f"Capabilities.facets names {facet!r}, which is no facet" for facet in sorted(unknown)]
        for promise, known in CHOICES.items():
            strange = sorted(getattr(adapter.capabilities, promise) - known)
            found += [
                f"Capabilities.{promise} names {each!r}; checks know {', '.join(sorted(known))}" for each in strange
            ]
        found += _promises_of_nothing(adapter.capabilities)
    return found


def _promises_of_nothing(capabilities: Capabilities) -> Iterator[str]:
    """Facets of which nothing is promised that a check could call: their checks would have nothing to run on."""
    reduces = bool(capabilities.collectives & {"all_reduce", "reduce_scatter"})
    needs = {
        "scores": ("scores",),
        "collectives": ("collectives", "collective_dtypes", *["reductions"] * reduces),
    }
    for facet in sorted(capabilities.facets & needs.keys()):
        for promise in needs[facet]:
            if not getattr(capabilities, promise):
                yield f"it promises the facet {facet}, but Capabilities.{promise} names none"
    floats = any(dtype.startswith("float") for dtype in capabilities.collective_dtypes)
    if "collectives" in capabilities.facets and reduces and capabilities.reductions == {"mean"} and not floats:
        yield "Capabilities.reductions names the mean only, which is of floats, and collective_dtypes names none of them"


def _kind(thing: Any) -> str:
    if isinstance(thing, type):
        return f"the class {thing.__name__}"
    if inspect.isroutine(thing):
        return f"the function {thing.__name__}()"
    return f"a {type(thing).__name__}"


def _takes_one(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a builtin may not tell
        return True
    return True


def _misfits(capabilities: Capabilities) -> list[str]:
    """Promises of a wrong type, or with a value that no check knows: such a one would hide checks."""
    hints = get_type_hints(Capabilities)
    return [
        f"Capabilities.{field.name} must be {_wanted(hints[field.name])}, got {value!r}"
        for field in dataclasses.fields(Capabilities)
        if not _fits(value := getattr(capabilities, field.name), hints[field.name])
    ]


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return any(value == known for known in get_args(hint))
    if get_origin(hint) is frozenset:
        return isinstance(value, (frozenset, set))
    if isinstance(hint, type):
        return isinstance(value, hint)
    return any(_fits(value, each) for each in get_args(hint))


def _wanted(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) is frozenset:
        return f"a frozenset of {get_args(hint)[0].__name__}"
    if isinstance(hint, type):
        return {NoneType: "None", bool: "True or False"}.get(hint, hint.__name__)
    return " or ".join(map(_wanted, get_args(hint)))


def problems_of_facets(facets: Any, capabilities: Capabilities, context: RankContext) -> list[str]:
    """Everything that is wrong with what connect() returned, one sentence each."""
    if not isinstance(facets, Facets):
        return [f"connect() must return ddpcheck.Facets, got {type(facets).__name__}"]
    found = []
    if facets.world_size != context.world_size:
        found.append(
            f"launched as {context.world_size} ranks, but the implementation sees a world of {facets.world_size}"
        )
    if facets.rank != context.rank:
        found.append(f"launched as rank {context.rank}, but the implementation says that it is rank {facets.rank!r}")
    for facet, name in _FACET_FIELDS.items():
        if facet in capabilities.facets and not callable(getattr(facets, name)):
            found.append(f"promises the facet {facet}, but Facets.{name} is {getattr(facets, name)!r}{_OR_LESS}")
    if capabilities.counts_traffic and not callable(facets.counts):
        found.append(f"promises counts_traffic, but Facets.counts is {facets.counts!r}")
    if "collectives" in capabilities.facets:
        if facets.collectives is None:
            found.append(f"promises the facet collectives, but Facets.collectives is None{_OR_LESS}")
        elif isinstance(facets.collectives, type):
            found.append(f"Facets.collectives is {_kind(facets.collectives)}, but should be an object of it")
        else:
            names = _methods(capabilities)
            missing = [name for name in names if not callable(getattr(facets.collectives, name, None))]
            found += [
                f"promises collectives, but {type(facets.collectives).__name__} has no {name}()" for name in missing
            ]
    return found


def causes_of_facets(facets: Any, context: RankContext) -> tuple[Cause, ...]:
    """Why what connect() returned may be wrong."""
    if not isinstance(facets, Facets):
        return ()
    if facets.world_size == 1 < context.world_size:
        return (causes.WORLD_OF_ITS_OWN(),)
    early = facets.rank == 0 != context.rank and facets.world_size == context.world_size
    return (causes.RANK_READ_AT_IMPORT(),) * early


def _methods(capabilities: Capabilities) -> list[str]:
    names = [m for name in sorted(capabilities.collectives) for m in _COLLECTIVE_METHODS.get(name, (name,))]
    return (
        names
        + ["all_reduce_async"] * capabilities.asynchronous
        + ["all_reduce_in_place", "empty"] * capabilities.in_place
    )
