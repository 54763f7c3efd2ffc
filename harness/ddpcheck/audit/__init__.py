"""The second road: is a training script on N ranks the run that one process would do on the whole batch?

    script  ──►  real run on N ranks  ──►  journals  ──►  evidence  ──►  laws  ──►  verdicts, page
            └──►  mirror runs (M = 1, M = N)  ──►  journals ──┘

The script is not changed. `record` installs a recorder and runs the script; `mirror` runs it again in one process, as rank 0 of
M identical ranks that hold the whole batch; `evidence` compares the runs and is plain data; `laws` judge the evidence alone.

A script whose batches nobody can recognise may mark them with one line, which is the identity outside an audit:

    batch = ddpcheck.audit.batch(batch)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["batch"]

Batch = TypeVar("Batch")

_marked: list[Callable[[object], object]] = []
"""What an audit does with a marked batch; empty outside an audit."""


def batch(value: Batch) -> Batch:
    """The same batch; in a mirror run, the batches of all ranks put together."""
    for seen in _marked:
        value = seen(value)  # type: ignore[assignment]
    return value
