"""Mistakes with torch's fully_shard, which splits parameters over the ranks."""

from __future__ import annotations

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.sharding import split_before_broadcast

# fmt: off
table(
    globals(),
    Fault("split-before-broadcast", "Each rank splits its own initial parameters into shards, before rank 0's are broadcast.",
          where=always, effect=split_before_broadcast,
          caught_by="check_construction_broadcasts_parameters_from_rank_0", cause="split-before-broadcast"),
)
# fmt: on
