"""The last operations behind expected values, as plain records, from which hypotheses about a wrong value start.

Arrays have the ranks as first axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..job import Job
from ..seeded_values import Array
from .clipping import Clip
from .history import History
from .job_constants import Case
from .optimizer import Optimizer
from .passes import Pass


@dataclass(frozen=True, slots=True)
class Accumulated:
    """The backward passes behind a parameter's gradient.

    zeros: by name, of the shape of every gradient. shared: whether several layers use the parameter. inside: whether
    the last backward was inside no_sync. weighted: whether batch sizes are promised to count. clipped: the clip since
    then, or None. by_weight: whether ranks are promised to count by their samples' weights. untrained: the Case, if
    parameters still have their initial values.
    """

    name: str
    history: History
    zeros: Mapping[str, Array]
    dtype: str
    shared: bool
    inside: bool
    weighted: bool
    clipped: Clip | None = None
    by_weight: bool = False
    untrained: Case | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """One update of one parameter.

    before and `optimizer`: the parameter and the optimizer's state before the update. gradient: the gradient to apply.
    history: of the ranks' own gradients. clipped: the clip of the gradient. initial: the parameter before a state was
    loaded, if that was the previous operation. earlier: the parameter before the previous update, or None.
    """

    name: str
    before: Array
    gradient: Array
    optimizer: Optimizer
    history: History
    clipped: Clip | None = None
    initial: Array | None = None
    earlier: Array | None = None


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A parameter without gradient in a step, which must not change. before and `optimizer`: the parameter and the
    optimizer's state before the step. earlier: its previous origin.
    """

    name: str
    before: Array
    optimizer: Optimizer
    earlier: Origin | None


@dataclass(frozen=True, slots=True)
class Loading:
    """A parameter or buffer after load_state on a new replica. before: the last values of the old replica, on each
    rank. earlier: its origin before it was saved.
    """

    name: str
    job: Job
    before: Array
    earlier: Origin | None

    @property
    def initial(self) -> Array:
        """The values of rank 0's new replica before load_state."""
        return self.job.initial_of_resumed(0)[self.name].astype(np.float64)


@dataclass(frozen=True, slots=True)
class Averaged:
    """One update of a parameter's moving average. average: before the update. old, new: the parameter before and after
    the step.
    """

    average: Array
    old: Array
    new: Array
    decay: float
    steps: int


@dataclass(frozen=True, slots=True)
class Tracked:
    """A buffer of batch norm that one forward pass has updated. counts: the ranks' batch sizes. together: all ranks'
    samples are measured as one batch. inside: the forward pass was inside no_sync().
    """

    before: Array
    after: Array
    counts: Array
    together: bool = False
    inside: bool = False


Origin = Accumulated | Update | PassedOver | Loading | Averaged | Tracked


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses of a backward, shape (ranks,). trained: whether a step or a loaded state came before. resumed: whether
    a loaded state came before.
    """

    forward: Pass
    losses: Array
    case: Case
    trained: bool
    resumed: bool


@dataclass(frozen=True, slots=True)
class Norm:
    """The norm of gradients that a clip returns. uses: the number of layers that use each of their parameters."""

    history: History
    uses: Mapping[str, int]
    max_norm: float
