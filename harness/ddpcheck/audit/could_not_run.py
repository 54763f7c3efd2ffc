"""Recognises a script that ended before it trained, for a reason that it would have on one process, too."""

from __future__ import annotations

from .evidence import Evidence

_NEEDS_GPU = (
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
_NOT_PYTHON = ("SyntaxError", "IndentationError", "TabError", "ModuleNotFoundError", "ImportError")
"""Errors of a file that is no program, or that imports what is not installed."""
_USAGE_ERROR = 2
"""The exit status of a usage error, by the convention that argparse and click follow."""


def could_not_run(evidence: Evidence) -> str:
    """The predicate of the sentence that says why; empty if steps were taken, or for any other reason."""
    if evidence.steps_seen:
        return ""
    ends = [evidence.real.end(rank) for rank in range(evidence.ranks)]
    errors = [str(end.get("error", "")).strip().partition("\n")[0] for end in ends]
    if {end.get("exit_status") for end in ends} == {_USAGE_ERROR}:
        return "does not accept its arguments; options of the audit come before it"
    if not _ran_without_gpu(evidence):
        for error in errors:
            if any(text in error for text in _NEEDS_GPU):
                return f"needs a GPU; run it on the CPU with --no-gpu ({error})"
    if all(error.startswith(_NOT_PYTHON) for error in errors):
        return f"cannot be run: {errors[0]}"
    return ""


def _ran_without_gpu(evidence: Evidence) -> bool:
    return any(event.get("no_gpu") for rank in range(evidence.ranks) for event in evidence.real.of(rank, "installed"))
