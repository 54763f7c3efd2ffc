"""Hypotheses about a wrong array, from its elements alone, and from arrays that other hypotheses predict.

A check knows the right array. Its own hypotheses, such as this rank's own gradient, the gradient of the previous step
or the sum without a rank, are passed as `Evidence.alternatives`. Common factors, wrong tails, last bits and lost
precision are always tried.
"""

from .evidence import Alternatives, Evidence

__all__ = ["Alternatives", "Evidence"]
