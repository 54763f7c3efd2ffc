"""Audits a training script: is its run on N ranks equal to one process's run on the whole batches?

    script  ──►  real run on N ranks  ──►  journals  ──►  evidence  ──►  laws  ──►  verdicts, page
            └──►  mirror runs (M = 1, M = N)  ──►  journals ──┘

The script is not changed. `record` installs a recorder and runs the script. `mirror` runs it again in one process, as
rank 0 of M identical ranks that hold the whole batch. `evidence` compares the runs and is plain data; `laws` judge only
the evidence.

If the recorder cannot recognise a script's batches, one line in the script marks them; outside an audit it has no
effect:

    batch = ddpcheck.audit.batch(batch)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["batch"]

Batch = TypeVar("Batch")

_marked: list[Callable[[object], object]] = []
"""The function that an audit applies to a marked batch; empty outside an audit."""


def batch(value: Batch) -> Batch:
    """The same batch; in a mirror run, the batches of all ranks put together."""
    for seen in _marked:
        value = seen(value)  # type: ignore[assignment]
    return value
