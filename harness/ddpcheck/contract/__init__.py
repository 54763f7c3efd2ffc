"""The contract: what an implementation can promise (promises), all promises of one (capabilities), what checks need (needs)."""

from .capabilities import CONTRACT, FACETS, GROUP_OF, GROUPS, SENTENCES, Capabilities, promises_of
from .promises import (
    ALL_SCORES,
    PLAIN_COLLECTIVES,
    PLAIN_ENGINE,
    PLAIN_SAMPLER,
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
    "ALL_SCORES", "CONTRACT", "FACETS", "GROUPS", "GROUP_OF", "PLAIN_COLLECTIVES", "PLAIN_ENGINE", "PLAIN_SAMPLER",
    "SENTENCES", "Capabilities", "CollectivePromises", "Determinism", "MetricPromises", "RandomnessPromises",
    "ReplicaPromises", "SamplerPromises", "ScorePromises", "Traffic", "TrainerPromises", "WorldPromises", "promises_of",
]  # fmt: skip
