"""Execution of a Job on one rank: operations call the facets of an implementation, and results are recorded.

Only this package calls an implementation. Results are validated here; all problems of one operation are raised
together.

    job_runner          runs one operation after the other, and records the results
    runners             the function of each operation: enter a new operation there
    rank_state          the state of this rank and this Job
    result_validation   whether the contract allows a result
    timing              measured calls

The other modules run operations, one module for each facet.
"""

from .job_runner import Execution
from .result_validation import ContractViolation

__all__ = ["ContractViolation", "Execution"]
