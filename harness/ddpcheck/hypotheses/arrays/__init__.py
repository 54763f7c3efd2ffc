"""From a wrong array to its likeliest causes, as values.

A check knows what the array should be; it may also have hypotheses with the arrays that they would give (this
rank's own gradient, the last step's gradient, the sum without the tail ...). Those go in as `Evidence.alternatives`;
whole factors, untouched tails, last-bit differences and lost precision are looked for in any case.

    causes      the hypotheses in order, and the causes that they name
    where       where the wrong elements lie
    patterns    patterns of wrong elements
    narrowed    sums of parts that were rounded to fewer bits on the way
    low_rank    matrices of fewer dimensions
    offset      elements that are all off by one number
    crept       updates that went a small part of their way
"""

from .likely_cause import Alternatives, Evidence, likely_causes

__all__ = ["Alternatives", "Evidence", "likely_causes"]
