"""Hypotheses about a parameter or buffer after load_state on a new replica."""

from __future__ import annotations

import numpy as np

from ...causes import Cause
from ...causes import updates as causes
from ...oracle.origins import Loading
from ...seeded_values import Array
from ..arrays import Alternatives, Evidence


def of_loaded(origin: Loading, earlier: Alternatives, rank: int) -> Evidence:
    """earlier: hypotheses about the operation before the state was saved."""
    name, job = origin.name, origin.job
    known: list[tuple[Cause, Array]] = [(causes.LOADED_LATEST(), origin.before[rank])]
    known += [
        (causes.NOT_LOADED(rank=other), job.initial_of_resumed(other)[name].astype(np.float64))
        for other in dict.fromkeys((rank, 0))
    ]
    known += earlier
    known.append((causes.STATE_OF_CONSTRUCTION(), job.initial(0)[name].astype(np.float64)))
    return Evidence(len(origin.before), alternatives=tuple(known))
