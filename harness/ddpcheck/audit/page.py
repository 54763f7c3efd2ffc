"""The page of an audit: the answer, findings by cause, a table of laws, and the scope of the audit."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from ..counted_nouns import counted
from ..printable_text import fenced, in_markdown
from ..relative_paths import with_relative_paths
from ..storage.files import write_atomically
from ..verdict import NOTED_SYMBOL, SYMBOLS, Verdict
from .evidence import Evidence
from .laws import LAWS
from .verdicts import NOTHING_JUDGED, answer
from .whole_output import SHOWN_LINES

_WORDS = {"passed": "held", "noted": "note", "failed": "broken", "skipped": "not judged", "unknown": "crashed"}
_SYMBOLS = {**SYMBOLS, "noted": NOTED_SYMBOL}


def page(evidence: Evidence, verdicts: list[Verdict], *, every: bool = False) -> str:
    """Plain text. Without `every`, laws that held are only counted, and if nothing could be judged, all others, too."""
    return "\n".join(_lines(evidence, verdicts, every=every))


def _lines(evidence: Evidence, verdicts: list[Verdict], *, every: bool) -> Iterator[str]:
    status, first = answer(evidence, verdicts)
    yield first
    if status == NOTHING_JUDGED and evidence.real.output.strip():
        yield "the script's last output:"
        yield from (f"   {line}" for line in evidence.real.output.rstrip().splitlines()[-SHOWN_LINES:])
    yield from _findings(verdicts)
    yield ""
    counted_only = () if every else ("passed", "skipped") if status == NOTHING_JUDGED else ("passed",)
    yield from _table(verdicts, counted_only)
    yield ""
    yield from scope(evidence)


def _findings(verdicts: list[Verdict]) -> Iterator[str]:
    """The first finding of each cause in full, the others in one line each."""
    seen: set[str] = set()
    number = 0
    for verdict in verdicts:
        if verdict.status == "unknown":
            yield f"\n? {verdict.check} crashed, so it did not judge the script:\n{verdict.reason.rstrip()}"
        if verdict.diagnosis is None:
            continue
        cause = verdict.diagnosis.cause
        name = cause.id if cause is not None else verdict.check
        number += 1
        yield ""
        if name in seen:
            yield f"{number}. the same cause: {verdict.diagnosis.headline} ({verdict.check})"
            continue
        seen.add(name)
        yield f"{number}. {cause.headline if cause else verdict.diagnosis.headline} [{name}]"
        if cause is not None:
            yield f"   seen: {verdict.diagnosis.headline}"
            if cause.because:
                yield f"   {cause.because}"
            if cause.look:
                yield f"   look at: {cause.look}"
        for other in verdict.diagnosis.causes[1:]:
            yield f"   or: {other.headline} [{other.id}]"
        details = [line for detail in verdict.diagnosis.details for line in detail.splitlines()]
        yield from (f"   {line}" for line in details[-SHOWN_LINES:])
    if number > 1:
        yield "\nBegin with 1: the later findings may follow from it."


def _table(verdicts: list[Verdict], counted_only: Collection[str]) -> Iterator[str]:
    sentences = {law.name: law.sentence for law in LAWS}
    width = max(map(len, sentences.values()))
    for result, word in _WORDS.items():
        own = [verdict for verdict in verdicts if _result(verdict) == result]
        if own and result in counted_only:
            yield f"{_SYMBOLS[result]} {word:<10} {counted(len(own), 'law')}; ddpcheck audit -v names them"
            continue
        for verdict in own:
            if result == "noted":  # its sentence alone may contradict the observation
                yield f"{_SYMBOLS[result]} {word:<10} {_note(verdict)} (law: {sentences[verdict.check]})"
                continue
            note = "" if result == "unknown" else _note(verdict)
            yield f"{_SYMBOLS[result]} {word:<10} {sentences[verdict.check]:<{width}}  {note}".rstrip()


def _result(verdict: Verdict) -> str:
    return "noted" if verdict.noted else verdict.status


def _note(verdict: Verdict) -> str:
    return "; ".join(filter(None, (verdict.reason, verdict.observation)))


def scope(evidence: Evidence) -> Iterator[str]:
    """The scope of the audit, deviations from the script, and files left on disk."""
    real = evidence.real
    passes = len({(e["key"], e["passed"]) for e in real.of(0, "epoch")})
    yield (
        f"looked at: {counted(evidence.steps_seen, 'optimizer step')} on {counted(evidence.ranks, 'rank')}, "
        f"{evidence.steps_compared} of them against one process; "
        f"{counted(passes, 'pass', 'passes')} over loaders"
    )
    if evidence.real.of(0, "cut"):
        stopped = counted(evidence.steps_seen, "step")
        yield f"the run was stopped after {stopped}; the epoch in progress was ended early at that point"
    yield f"batches came from: {_source(evidence)}"
    for event in {(e["what"], e["by"], e["line"]) for e in real.of(0, "instead")}:
        yield f"replaced: {event[0]} at {event[2]} became {event[1]}"
    misfits = {f"{e['what']} at {e['line']}" for e in evidence.of_one_process("misfit")}
    if misfits:
        yield f"not put together in the run as one process: {', '.join(sorted(misfits))}"
    if evidence.of_one_process("recollated"):
        yield "batches of different shapes were collated again by the script's own collate function"
    written = sorted({event["path"] for events in evidence.each_rank("save") for event in events if event["path"]})
    if written:
        yield f"files that the script wrote: {', '.join(written[:4])}{' ...' if len(written) > 4 else ''}"
    yield from (run.whole_output for run in (real, *evidence.mirrors.values()) if run.whole_output)
    size = sum(
        run.end(rank).get("bytes", 0) for run in (real, *evidence.mirrors.values()) for rank in range(len(run.events))
    )
    names = {
        "one": "one process",
        "noise": "one process again, for rounding",
        "all": f"{evidence.ranks} identical ranks",
    }
    others = [f"{names.get(name, name)} {run.seconds:.1f} s" for name, run in evidence.mirrors.items()]
    memory = max((real.end(rank).get("memory", 0) for rank in range(len(real.events))), default=0)
    if memory:
        yield f"memory: {memory / 2**30:.1f} GiB on a rank, at most {evidence.ranks} times that in the run as one process"
    ran = ", ".join([f"{counted(evidence.ranks, 'rank')} {real.seconds:.1f} s", *others])
    yield f"time of each run: {ran}; size of the record: {size / 2**20:.1f} MiB"


def _source(evidence: Evidence) -> str:
    batches = evidence.real.of(0, "batch")
    if any(event["key"] == "marked" for event in batches):
        return "ddpcheck.audit.batch() in the script"
    if any(event["grad"] for event in batches):
        return "DataLoader"
    if any(event["integer"] for event in evidence.real.of(0, "draw")):
        return "drawn indices"
    if evidence.real.failed and not any(evidence.each_rank("backward", "step")):
        return "no source: the script failed before it trained anything"
    return "no recognised source; mark batches in the script: batch = ddpcheck.audit.batch(batch)"


def markdown(evidence: Evidence, verdicts: list[Verdict], run_again: str = "") -> str:
    """The page as markdown. run_again: the command that repeats the audit; empty if it is not known."""
    status, first = answer(evidence, verdicts)
    sentences = {law.name: law.sentence for law in LAWS}
    rows = [f"| {sentences[v.check]} | {_WORDS[_result(v)]} | {_cell(v)} |" for v in verdicts]
    findings = [fenced(verdict.diagnosis.text()) for verdict in verdicts if verdict.diagnosis]
    again = ["Run again:", fenced(run_again, "sh")] if run_again and status else []
    parts = [
        f"# Audit of {in_markdown(evidence.title)}",
        f"**{first}**",
        *findings,
        *again,
        "\n".join(["| law | result | |", "|---|---|---|", *rows]),
        "\n".join(f"- {in_markdown(line)}" for line in scope(evidence)),
    ]
    return with_relative_paths("\n\n".join(parts)) + "\n"


def _cell(verdict: Verdict) -> str:
    text = verdict.diagnosis.headline if verdict.diagnosis else _note(verdict).partition("\n")[0]
    return in_markdown(text).replace("|", "\\|")


def write_markdown(evidence: Evidence, verdicts: list[Verdict], path: Path, run_again: str = "") -> None:
    """Write the page. UnwritableFile if that fails."""
    write_atomically(path, markdown(evidence, verdicts, run_again))
