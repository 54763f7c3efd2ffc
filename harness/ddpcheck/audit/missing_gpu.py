"""Recognises a script that ended because it asks for a GPU, or for NCCL, that the machine does not have."""

from __future__ import annotations

from .evidence import Evidence

_TOLD = (
    "have NCCL built in",
    "ProcessGroupNCCL is only supported with GPUs",
    "not compiled with CUDA enabled",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
    "no CUDA-capable device is detected",
    "invalid device ordinal",
    "Duplicate GPU detected",
)
"""Parts of torch's messages."""


def missing_gpu(evidence: Evidence) -> str:
    """The first line of the error; empty if no rank ended so, if steps were taken, or if the script ran with --no-gpu."""
    real = evidence.real
    if evidence.steps_seen or any(
        event.get("no_gpu") for rank in range(evidence.ranks) for event in real.of(rank, "installed")
    ):
        return ""
    errors = [str(real.end(rank).get("error", "")) for rank in range(evidence.ranks)]
    return next((error.strip().partition("\n")[0] for error in errors if any(text in error for text in _TOLD)), "")
