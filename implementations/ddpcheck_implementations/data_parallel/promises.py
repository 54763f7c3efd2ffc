"""Promises of the NumPy references over any communicator. Each reference adds further promises."""

from __future__ import annotations

from ddpcheck.contract import TYPICAL, ReplicaSync
from ddpcheck.contract.allowed_names import ALL_MODEL_FEATURES, ALL_TRAINER_FEATURES

PROMISES = TYPICAL.of_facets("collectives", "sampler", "replica", "metrics", "scores", "trainer", "randomness").but(
    bundles_gradients=True,
    unused_parameters="synchronised",
    clipping=True,
    refuses_options=True,
    replica_sync=ReplicaSync.EACH_FORWARD,
    numeric_options=frozenset({"bucket_cap_mb"}),
    checkpoint=True,
    trainer_features=ALL_TRAINER_FEATURES,
    unfreezing=True,
    zeroes_gradients=True,
    model_features=ALL_MODEL_FEATURES,
    sample_weights="by_weight",
    several_replicas=True,
    timeline=True,
    distinct_streams=True,
    sampler_state=True,
    scores_count_once=True,
    scores_skip_padding=True,
    metrics_by_name=True,
)
