"""Causes as values, and the catalogue that renders them: one module for each family, `cause.py` for what they are made of."""

from . import (
    audit,
    batch_norm,
    collectives,
    gradients,
    lifecycle,
    operations,
    programs,
    randomness,
    ranks,
    rendezvous,
    replicas,
    traffic,
    updates,
    values,
)
from .cause import KINDS, Cause, Certainty, Elements, Kind, Parameter

__all__ = [
    "KINDS",
    "Cause",
    "Certainty",
    "Elements",
    "Kind",
    "Parameter",
    "audit",
    "batch_norm",
    "collectives",
    "gradients",
    "lifecycle",
    "operations",
    "programs",
    "randomness",
    "ranks",
    "rendezvous",
    "replicas",
    "traffic",
    "updates",
    "values",
]
