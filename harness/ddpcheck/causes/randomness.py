"""Why random numbers differ between ranks that share them, or agree between ranks that should not."""

from .cause import Kind

GLOBAL_GENERATOR_DECIDES = Kind(
    "global-generator-decides",
    "A generator of the process decides: ranks choose differently once one draws from it.",
    because="The generators are random, numpy.random and torch. This holds if training is right in all other checks.",
    certainty="possible",
)
