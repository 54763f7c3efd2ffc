"""The contract: the facets of an implementation (adapter, extras, trainer), its promises (promises, capabilities), and what
checks need of it (needs).
"""

from .capabilities import CONTRACT, FACETS, GROUP_OF, GROUPS, SENTENCES, TYPICAL, Capabilities, promises_of
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
)

__all__ = [
    "ALL_SCORES",
    "CONTRACT",
    "FACETS",
    "GROUPS",
    "GROUP_OF",
    "PLAIN_COLLECTIVES",
    "PLAIN_ENGINE",
    "PLAIN_SAMPLER",
    "PLAIN_WORLD",
    "SENTENCES",
    "TYPICAL",
    "Capabilities",
    "CollectivePromises",
    "Determinism",
    "MetricPromises",
    "RandomnessPromises",
    "ReplicaPromises",
    "SamplerPromises",
    "ScorePromises",
    "Traffic",
    "TrainerPromises",
    "WorldPromises",
    "promises_of",
]
