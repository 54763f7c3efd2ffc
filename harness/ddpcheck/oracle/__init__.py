"""The oracle: the same training in one process, in float64, with its own model, losses and optimizers.

`Oracle(job, capabilities)` walks a Job and says, operation by operation, what every rank must have seen, and how far
rounding may have taken it from there. Layers and losses are written in autograd.numpy, derivatives are autograd's, so
that no line of backward code is common to the oracle and the implementations that it judges.
"""

from .exactness import is_exact, loss_scale_for
from .expected_values import ExpectedArray, ExpectedOperation
from .job_in_one_process import Oracle

__all__ = ["ExpectedArray", "ExpectedOperation", "Oracle", "is_exact", "loss_scale_for"]
