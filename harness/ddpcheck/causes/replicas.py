"""Why replicas differ, or a replica does not do what one process would."""

from .cause import Kind

DIFFERENT_MODELS = Kind("different-models", "The ranks do not hold the same model: shapes or dtypes differ.")
LAST_BITS_DIFFER = Kind(
    "last-bits-differ",
    "The ranks add in different orders: their values differ in the last bits.",
    because="Replicas drift apart from here.",
)
REPLICAS_DIFFER = Kind("replicas-differ", "The replicas have drifted apart, or were never equal.")
