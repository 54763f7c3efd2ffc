"""The contract: the facets of an implementation (adapter, extras, trainer), its promises (promises, members, capabilities),
and what checks need of it (needs).
"""

from .capabilities import CONTRACT, FACETS, GROUP_OF, GROUPS, MEMBERS, SENTENCES, TYPICAL, Capabilities
from .members import CallForm, Member, ReplicaMethod
from .promises import (
    ALL_SCORES,
    PLAIN_COLLECTIVES,
    PLAIN_ENGINE,
    PLAIN_SAMPLER,
    PLAIN_WORLD,
    CollectivePromises,
    Determinism,
    MetricPromises,
    RandomnessPromises,
    ReplicaPromises,
    SamplerPromises,
    ScorePromises,
    Traffic,
    TrainerPromises,
    WorldPromises,
    promises_of,
)

__all__ = [
    "ALL_SCORES",
    "CONTRACT",
    "FACETS",
    "GROUPS",
    "GROUP_OF",
    "MEMBERS",
    "PLAIN_COLLECTIVES",
    "PLAIN_ENGINE",
    "PLAIN_SAMPLER",
    "PLAIN_WORLD",
    "SENTENCES",
    "TYPICAL",
    "CallForm",
    "Capabilities",
    "CollectivePromises",
    "Determinism",
    "Member",
    "MetricPromises",
    "RandomnessPromises",
    "ReplicaMethod",
    "ReplicaPromises",
    "SamplerPromises",
    "ScorePromises",
    "Traffic",
    "TrainerPromises",
    "WorldPromises",
    "promises_of",
]
