"""Validates an adapter, and the facets that its connect() returns, against the contract; reports all problems at
once.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from enum import IntEnum
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..causes import Cause
from ..causes import lifecycle as causes
from . import CONTRACT, GROUP_OF, GROUPS, CallForm, Capabilities, promises_of
from .adapter import Facets
from .rank_context import RankContext

_FACET_FIELDS = {
    "sampler": "make_sampler",
    "replica": "make_replica",
    "metrics": "aggregate_metrics",
    "scores": "compute_score",
    "trainer": "train",
    "randomness": "make_streams",
}
_OR_LESS = "; return it from connect(), or remove its group of promises from Capabilities(...)"
_COLLECTIVE_METHODS = {"send_recv": ("send", "recv")}
_METHODS_OF_FORMS = {CallForm.ASYNCHRONOUS: ("all_reduce_async",), CallForm.IN_PLACE: ("all_reduce_in_place", "empty")}


def problems_of_adapter(adapter: Any) -> list[str]:
    """All problems of an adapter before it starts, one sentence each."""
    if isinstance(adapter, type) or not hasattr(adapter, "capabilities"):
        return [f"it is {_kind(adapter)}, but should be an Adapter, assigned to a module-level name"]
    written_for = getattr(adapter, "contract", 1)
    if written_for not in range(1, CONTRACT + 1):
        return [
            f"it is written for contract {written_for!r}, but this ddpcheck knows contract {CONTRACT}; update ddpcheck"
        ]
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
        found += [*_unknown_names(adapter.capabilities), *_promises_of_nothing(adapter.capabilities)]
    return found


def _promises(capabilities: Capabilities) -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    """Every promise as `Capabilities.GROUP.NAME`, with its field and its value."""
    for group, kind in GROUPS.items():
        for field in promises_of(kind):
            yield f"Capabilities.{group}.{field.name}", field, getattr(getattr(capabilities, group), field.name)


def _unknown_names(capabilities: Capabilities) -> Iterator[str]:
    """Names in promises that no check knows; a misspelt name would hide checks."""
    for name, field, value in _promises(capabilities):
        known = field.metadata["known"]
        if known is not None:
            for each in sorted(value - known):
                yield f"{name} has {each!r}; checks know {', '.join(sorted(known))}"


def _promises_of_nothing(capabilities: Capabilities) -> Iterator[str]:
    """Offered facets without a promised operation: their checks would have nothing to call."""
    promised = capabilities.collectives
    reduces = bool(promised.operations & {"all_reduce", "reduce_scatter"})
    needs = {"scores": ("score_names",), "collectives": ("operations", "dtypes", *["reductions"] * reduces)}
    for facet in sorted(capabilities.facets & needs.keys()):
        for name in needs[facet]:
            if not getattr(getattr(capabilities, facet), name):
                yield f"it promises the facet {facet}, but Capabilities.{facet}.{name} is empty"
    floats = any(dtype.startswith("float") for dtype in promised.dtypes)
    if promised.offered and reduces and promised.reductions == {"mean"} and not floats:
        yield "Capabilities.collectives.reductions has only mean, which needs a floating dtype, and dtypes has none"


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
    except ValueError:  # builtins may have no signature
        return True
    return True


def _misfits(capabilities: Capabilities) -> list[str]:
    """Promises with a wrong type or an unknown value, which would hide checks."""
    found = [
        f"Capabilities.{group} must be {kind.__name__}(...), got {getattr(capabilities, group)!r}"
        for group, kind in GROUPS.items()
        if not isinstance(getattr(capabilities, group), kind)
    ]
    hints = {name: hint for kind in GROUPS.values() for name, hint in get_type_hints(kind).items()}
    return found or [
        f"{name} must be {_wanted(hints[field.name])}, got {value!r}"
        for name, field, value in _promises(capabilities)
        if not _fits(value, hints[field.name])
    ]


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return any(value == known for known in get_args(hint))
    if get_origin(hint) is AbstractSet:
        return isinstance(value, (frozenset, set))
    if isinstance(hint, type):
        return isinstance(value, hint)
    return any(_fits(value, each) for each in get_args(hint))


def _wanted(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) is AbstractSet:
        return f"a set of {get_args(hint)[0].__name__}"
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return " or ".join(f"ddpcheck.{hint.__name__}.{level.name}" for level in hint)
    if isinstance(hint, type):
        return {NoneType: "None", bool: "True or False"}.get(hint, hint.__name__)
    return " or ".join(map(_wanted, get_args(hint)))


def problems_of_facets(facets: Any, capabilities: Capabilities, context: RankContext) -> list[str]:
    """All problems of the object that connect() returned, one sentence each."""
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
    found += [
        f"Facets.lacks has {name!r}, but Capabilities has no promise of that name"
        for name in facets.lacks
        if name not in GROUP_OF
    ]
    if capabilities.world.counts_traffic and not callable(facets.counts):
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
    """Advice for a wrong result of connect()."""
    if not isinstance(facets, Facets):
        return ()
    if facets.world_size == 1 < context.world_size:
        return (causes.WORLD_OF_ITS_OWN(),)
    early = facets.rank == 0 != context.rank and facets.world_size == context.world_size
    return (causes.RANK_READ_AT_IMPORT(),) * early


def _methods(capabilities: Capabilities) -> list[str]:
    names = [m for name in sorted(capabilities.collectives.operations) for m in _COLLECTIVE_METHODS.get(name, (name,))]
    return names + [
        method
        for form, methods in _METHODS_OF_FORMS.items()
        if form in capabilities.collectives.call_forms
        for method in methods
    ]
