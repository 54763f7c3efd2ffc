"""ddpcheck: is this data-parallel training implementation right, and how does it scale?"""

from .adapter import Adapter, Batch, Collectives, Facets, Handle, Replica, Sampler
from .capabilities import Capabilities
from .checks import Check, law
from .environment import RankContext, rank_context
from .job import Job
from .model import ModelSpec, mlp
from .session import Session, StartFailed
from .trace import RankTrace, Trace
from .verdict import Diagnosis, Finding, Verdict

__version__ = "0.1.0"

__all__ = [
    "Adapter",
    "Batch",
    "Capabilities",
    "Check",
    "Collectives",
    "Diagnosis",
    "Facets",
    "Finding",
    "Handle",
    "Job",
    "ModelSpec",
    "RankContext",
    "RankTrace",
    "Replica",
    "Sampler",
    "Session",
    "StartFailed",
    "Trace",
    "Verdict",
    "law",
    "mlp",
    "rank_context",
]
