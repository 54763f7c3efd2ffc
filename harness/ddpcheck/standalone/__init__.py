"""Stand-alone scripts: a failing Job as a short script that shows the failure without the harness.

    path = write_script(Path("shows_it.py"), "my_ddp.adapter:adapter", job, FailedCheck("check_...", "the law", diagnosis))

The script runs as `python shows_it.py`, under mpirun, and under torchrun. It calls collectives, samplers, metrics and
scores one after the other, and computes the expected value of each result. Jobs with a model, of replicas and training
runs, have no script: `ddpcheck replay FILE` shows them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..contract.adapter import Adapter
from ..counted_nouns import counted
from ..job import Job, Operation, Rounds, Sample
from ..launchers.launcher import Launcher, ParentProcessLauncher
from ..launchers.mpi import find_mpi
from ..running.adapter_lookup import UnusableAdapter, resolve
from ..storage.files import write_atomically
from ..verdict import Diagnosis
from . import collectives, repeated_calls, samplers_and_metrics, scores
from .literals import text_literal
from .text import NoScript, Text

__all__ = ["FailedCheck", "NoScript", "script", "write_script"]

_IMPORTS = "from __future__ import annotations\n\nimport numpy as np"
_CUT = "# ------------------------------ the rest"
_WRITERS: dict[str, Callable[[Text, int, Any], None]] = {
    "all_reduce": collectives.all_reduce,
    "wait": collectives.wait,
    "broadcast": collectives.broadcast,
    "all_gather": collectives.all_gather,
    "reduce_scatter": collectives.reduce_scatter,
    "barrier": collectives.barrier,
    "send_recv": collectives.send_recv,
    "sample": samplers_and_metrics.sample,
    "resume_sampling": samplers_and_metrics.resume_sampling,
    "aggregate": samplers_and_metrics.aggregate,
    "score": scores.score,
    "sleep": samplers_and_metrics.sleep,
    "calls": repeated_calls.calls,
    "close": repeated_calls.close,
}


@dataclass(frozen=True)
class FailedCheck:
    """The check's name, its law in a sentence, and the diagnosis, if there is one."""

    check: str
    sentence: str = ""
    diagnosis: Diagnosis | None = None


def write_script(path: Path, reference: str, job: Job, told: FailedCheck, launcher: Launcher | None = None) -> Path:
    """launcher: used instead of the adapter's. NoScript if the Job has an operation without a plain form."""
    text = script(reference, job, told, path.name, launcher)
    write_atomically(path, text)
    return path


def script(
    reference: str, job: Job, told: FailedCheck, name: str = "script.py", launcher: Launcher | None = None
) -> str:
    """The source of the script for a failed Job. NoScript if there is none."""
    try:
        adapter, full = resolve(reference)
    except UnusableAdapter as error:
        raise NoScript(str(error)) from error
    text = Text(job, adapter.capabilities)
    _fill(text)
    head = [
        _docstring(adapter, job, told, name, text),
        _IMPORTS,
        _constants(launcher or adapter.launcher, full, job),
    ]
    inputs = "\n".join(text.inputs)
    parts = [*head, *([f"# the inputs\n\n{inputs}"] if inputs else []), "\n" + _program(text)]
    return "\n\n".join(part.rstrip() for part in parts) + "\n\n\n" + _runtime()


def _fill(text: Text) -> None:
    job = text.job
    if job.model is not None:
        raise NoScript("Jobs of replicas and training runs are replayed by `ddpcheck replay FILE`")
    for position, operation in enumerate(job.operations):
        if isinstance(operation, Rounds):
            repeated_calls.rounds(text, position, operation, _write_one)
        else:
            _write_one(text, position, operation)
    if any(isinstance(operation, Sample) for operation in job.operations):
        samplers_and_metrics.compare_orders(text)


def _write_one(text: Text, position: int, operation: Operation) -> None:
    if operation.kind not in _WRITERS:
        raise NoScript(f"operation {position} ({operation.kind}) has no plain form")
    _WRITERS[operation.kind](text, position, operation)


def _docstring(adapter: Adapter, job: Job, told: FailedCheck, name: str, text: Text) -> str:
    size = job.world_size
    found = told.diagnosis or Diagnosis("")
    paragraphs = [f"{adapter.name}, {counted(size, 'rank')}: {found.headline or told.check}"]
    paragraphs += [f"Likely cause: {found.cause.headline}"] if found.cause else []
    law = f"Law: {told.sentence.rstrip('.')}. " if told.sentence else ""
    paragraphs.append(f"{law}(Found by ddpcheck, {told.check}; this is the smallest failing case that was found.)")
    paragraphs.append("It needs NumPy and the implementation only; ddpcheck need not be installed.")
    if not text.judges:
        paragraphs.append("It compares nothing: it prints the results, and where it stops.")
    paragraphs.append(
        "Run it in any of these ways; the exit status is 1 if anything is WRONG. A failure that depends on timing does not "
        "show in every run."
    )
    ways = [f"python {name}", f"mpirun -n {size} python {name}", f"torchrun --nproc-per-node {size} {name}"]
    notes = ["# starts the ranks itself", "", ""]
    width = max(map(len, ways))
    lines = [f"    {way:{width}}   {note}".rstrip() for way, note in zip(ways, notes, strict=True)]
    shown = [textwrap.fill(paragraph, 112, break_long_words=False) for paragraph in paragraphs]
    body = "\n\n".join([*shown, "\n".join(lines)]).replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{body}\n"""'


def _constants(launcher: Launcher, reference: str, job: Job) -> str:
    hosts = (job.start and job.start.hosts) or (job.world_size,)
    start = _mpi_command(job.world_size) if launcher.name == "mpiexec" else []
    method = launcher.start_method if isinstance(launcher, ParentProcessLauncher) else ""
    return "\n".join(
        [
            f"ADAPTER = {text_literal(reference)}  # or the adapter named on the command line",
            f"WORLD_SIZE = {job.world_size}",
            f"HOSTS = {list(hosts)}  # the numbers of ranks on each simulated host",
            f"START = {start}".replace("'", '"')
            + "  # the command that starts the ranks under plain python; []: this script starts them",
            f'METHOD = "{method}"  # the start method: fork, spawn or forkserver of multiprocessing; "": separate processes',
            "DEADLINE = 10.0  # seconds; a rank that takes longer hangs",
        ]
    )


def _mpi_command(ranks: int) -> list[str]:
    """The start of a command line, with the flags that the MPI of this machine needs."""
    found = find_mpi()
    return ["mpiexec", *(found.command(ranks)[1:] if found else ["-n", str(ranks)])]


def _program(text: Text) -> str:
    """The function that runs the operations one after the other."""
    taken = [f"{facet} = facets.{facet}" for facet in text.facets]
    lines = [*taken, *text.lines]
    body = "\n".join(f"    {line}" if line else "" for part in lines for line in part.split("\n"))
    return f"def program(rank, facets):\n{body}"


def _runtime() -> str:
    """The common end of every script, with its imports, so that the case itself comes first."""
    sources = [(Path(__file__).parent / name).read_text(encoding="utf-8") for name in ("comparison.py", "launch.py")]
    above, below = zip(*(source.split(_CUT) for source in sources), strict=True)
    found = {line for text in above for line in text.splitlines() if line.startswith(("import ", "from "))}
    imports = sorted(
        line for line in found if "numpy" not in line and "__future__" not in line and "from ." not in line
    )
    imports.sort(key=lambda line: line.startswith("from "))
    title, _, first = below[0].partition("\n")
    second = below[1].partition("\n")[2]
    return "\n".join([_CUT + title, "", *imports, "", first.strip(), "", "", second.strip()]) + "\n"
