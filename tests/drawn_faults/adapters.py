"""The drawn adapters; names give the family, the number of the circumstance and the number of the effect."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from types import ModuleType

import collectives
import gradients
import metrics
import replicas
import samplers
import scores
import streams
import trainers

from ddpcheck.contract.adapter import Adapter, Facets
from ddpcheck.contract.rank_context import RankContext
from ddpcheck_implementations.numpy_sockets import adapter as right

FAMILIES: dict[str, ModuleType] = {
    "collectives": collectives,
    "sampler": samplers,
    "metrics": metrics,
    "gradient": gradients,
    "replica": replicas,
    "trainer": trainers,
    "scores": scores,
    "streams": streams,
}
"""Each module has CIRCUMSTANCES, EFFECTS, wrapped(), and promised(): its promises, a subset of the reference's."""
_NO_FACET = {field.name: None for field in fields(Facets) if field.default is None and field.name != "close"}


def named(family: str, circumstance: str, effect: str) -> str:
    """The attribute of this module for the adapter."""
    module = FAMILIES[family]
    return f"{family}_{[*module.CIRCUMSTANCES].index(circumstance)}_{[*module.EFFECTS].index(effect)}"


def _connect(context: RankContext, family: str, circumstance: str, effect: str) -> Facets:
    facets = right.connect(context)
    return replace(facets, **_NO_FACET | FAMILIES[family].wrapped(facets, circumstance, effect))


def __getattr__(name: str) -> Adapter:
    family, *numbers = name.split("_")
    if family not in FAMILIES or len(numbers) != 2:
        raise AttributeError(name)
    module = FAMILIES[family]
    chosen = [
        [*known][int(number)] for known, number in zip((module.CIRCUMSTANCES, module.EFFECTS), numbers, strict=True)
    ]
    promised = module.promised(right.capabilities).but(counts_traffic=False)
    connect = partial(_connect, family=family, circumstance=chosen[0], effect=chosen[1])
    return Adapter(name, connect, promised, right.launcher)
