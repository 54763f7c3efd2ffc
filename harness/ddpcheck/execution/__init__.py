"""Execution of a Job on one rank: its operations call the facets of an implementation, and results are recorded.

This is the only place where the harness calls an implementation. Everything that comes back is validated here; all
problems of one operation are raised together.

    job_runner          one operation after the other, and the records
    runners             the function of each operation: a new operation is entered there
    rank_state          this rank and this Job, as all of them know it
    result_validation   whether results are allowed by the contract
    timing              calls that are timed

The rest are the runners, by facet.
"""

from .job_runner import Execution
from .result_validation import ContractViolation

__all__ = ["ContractViolation", "Execution"]
