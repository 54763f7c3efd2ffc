"""The oracle: the same training in one process, in float64, with its own model, losses and optimizers.

`Oracle(job, capabilities)` walks a Job and gives the expected results of each operation on every rank, with bounds on
rounding. Layers and losses are written in autograd.numpy and differentiated by autograd, so the oracle shares no
backward code with the implementations under test.
"""

from .exactness import is_exact, loss_scale_for
from .expected_values import ExpectedArray, ExpectedOperation
from .job_in_one_process import Oracle

__all__ = ["ExpectedArray", "ExpectedOperation", "Oracle", "is_exact", "loss_scale_for"]
