"""Hypotheses about a wrong array, from its elements alone, and from the arrays that other hypotheses give.

A check knows the right array. Its own hypotheses, such as this rank's own gradient, the gradient of the step before or the sum
without a rank, go in as `Evidence.alternatives`. Whole factors, untouched tails, last bits and lost precision are tried
in any case.
"""

from .evidence import Alternatives, Evidence

__all__ = ["Alternatives", "Evidence"]
