"""The page: verdict first, then failures by cause, the matrix of checks, figures, and the settings of the run.

The page is self-contained: it loads nothing from other hosts, and runs only its own script.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files

from ddpcheck.counted_nouns import counted
from ddpcheck.running.failure_groups import group_failures
from ddpcheck.running.group_symptoms import FailureGroup
from ddpcheck.storage.results import Results
from ddpcheck.verdict import NOTED_SYMBOL, SYMBOLS, Verdict

from .bars import status_bars, time_bars
from .html import Html, tag, text
from .ranks_side_by_side import ranks_table

WORDS = {
    "failed": "failed",
    "hung": "hung",
    "unknown": "check crashed",
    "expected_failure": "failed as expected",
    "passed": "passed",
    "skipped": "skipped",
}
"""Statuses, the gravest first."""

_SYMBOLS = {**SYMBOLS, "hung": "◷"}
"""Symbols that browsers' fonts have; they lack the hourglass of a terminal."""


def page(results: Results) -> str:
    """The whole page, as a document."""
    style, script = _asset("style.css"), _asset("script.js")
    policy = f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'"
    title = f"ddpcheck: {_answer(results)}"
    head = tag(
        "head",
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", title),
        tag("style", Html(style)),
    )
    body = tag("body", *_sections(results), tag("script", Html(script)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _sections(results: Results) -> list[Html]:
    verdicts = results.verdicts
    figures = tag("div", status_bars(verdicts, WORDS), time_bars(verdicts), class_="figures")
    return [
        _verdict(results),
        *_what_went_wrong(verdicts),
        _matrix(verdicts),
        tag("section", tag("h2", "Figures"), figures),
        *_not_judged(verdicts),
        _how_it_was_run(results),
    ]


# ----------------------------------------------------------------------------------------------------- verdict


def _answer(results: Results) -> str:
    """The answer of an audit, or what was judged."""
    if "answer" in results.settings:
        return str(results.settings["answer"])
    verdicts = results.verdicts
    broken = {verdict.check for verdict in verdicts if verdict.status in ("failed", "hung")}
    crashed = {verdict.check for verdict in verdicts if verdict.status == "unknown"}
    judged = broken | {verdict.check for verdict in verdicts if verdict.status in ("passed", "expected_failure")}
    laws = counted(len(judged), "law")
    said = f"{laws} judged, none broken" if judged else "nothing was judged"
    if broken:
        said = f"{len(broken)} of {laws} broken"
    return f"{said}; {counted(len(crashed), 'check')} crashed" if crashed else said


def _verdict(results: Results) -> Html:
    verdicts, settings = results.verdicts, results.settings
    counts = Counter[str](verdict.status for verdict in verdicts)
    well = counts["passed"] > 0 and all(verdict.ok for verdict in verdicts)
    adapters = ", ".join(dict.fromkeys(verdict.adapter for verdict in verdicts)) or "no adapter"
    numbers = sorted({verdict.world_size for verdict in verdicts})
    sizes = f"world size{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"
    jobs, seconds = sum(verdict.jobs for verdict in verdicts), sum(verdict.seconds for verdict in verdicts)
    effort = f"{jobs:,} {'Job' if jobs == 1 else 'Jobs'}; {seconds:.1f} s of checks"
    title = f"{adapters}: {_answer(results)}"
    if "answer" in settings:
        title, effort = _answer(results), f"{settings['seconds']} s for the runs of the script"
    shown = [
        tag("span", f"{_SYMBOLS[status]} {counts[status]} {words}", class_=status)
        for status, words in WORDS.items()
        if counts[status]
    ]
    return tag(
        "header",
        tag("h1", f"{'✓' if well else '✗'} {title}"),
        tag("div", *shown, class_="counts"),
        tag("p", f"{sizes}; {effort}", class_="faint"),
        class_="verdict well" if well else "verdict",
    )


# ----------------------------------------------------------------------------------------------------- failures


def _what_went_wrong(verdicts: Sequence[Verdict]) -> list[Html]:
    groups = group_failures(verdicts)
    if not groups:
        return []
    return [
        tag(
            "section",
            tag("h2", "Failures by cause"),
            tag("p", "The most fundamental cause is first; others may follow from it.", class_="faint"),
            *(_cause(group, number, len(groups)) for number, group in enumerate(groups)),
        )
    ]


def _cause(group: FailureGroup, number: int, groups: int) -> Html:
    cause = group.first.cause
    begin = tag("span", "begin here", class_="begin") if number == 0 and groups > 1 else Html("")
    checks = counted(len(group.checks), "check")
    sizes = ", ".join(map(str, group.world_sizes))
    inside = [tag("code", cause.id), f" · {checks}"] if cause else [checks]
    where = tag("p", *inside, f" · {group.first.adapter}, world size {sizes}", class_="faint")
    rest = [verdict for verdict in group.verdicts if verdict is not group.first]
    return tag(
        "details",
        tag("summary", tag("h3", group.text, " ", begin), where),
        *map(_failure, (group.first, *rest)),
        class_="cause",
        open_=number == 0,
    )


def _failure(verdict: Verdict) -> Html:
    title = tag("h3", _name(verdict.check), class_=verdict.status)
    under = tag("p", f"{verdict.adapter}, world size {verdict.world_size}, family {verdict.family}", class_="faint")
    return tag("article", title, under, *_told(verdict), class_="failure", id=anchor(verdict))


def _told(verdict: Verdict) -> list[Html]:
    diagnosis = verdict.diagnosis
    if diagnosis is None:
        return [
            tag("p", "The check itself crashed, and did not judge the implementation."),
            tag("pre", verdict.reason),
        ]
    parts = [tag("p", diagnosis.headline, class_="got")]
    for number, cause in enumerate(diagnosis.causes):
        lead = "or" if number else f"{cause.certainty} cause"
        lines = [tag("p", f"{lead}: ", tag("strong", cause.headline), " ", tag("code", cause.id))]
        lines += [tag("p", cause.because)] if cause.because else []
        lines += [tag("p", f"look at: {cause.look}")] if cause.look else []
        parts.append(tag("div", *lines, class_="why"))
    parts += [tag("p", f"look next at: {diagnosis.advice}")] if diagnosis.advice else []
    parts += [ranks_table(verdict)]
    parts += [tag("pre", "\n".join(diagnosis.details))] if any(diagnosis.details) else []
    return parts


def anchor(verdict: Verdict) -> str:
    """The id of a failure on the page, without any text from the file."""
    name = f"{verdict.adapter}\n{verdict.check}".encode("utf-8", "replace")
    return f"failure-{hashlib.sha256(name).hexdigest()[:12]}-{verdict.world_size}"


# ----------------------------------------------------------------------------------------------------- matrix


def _matrix(verdicts: Sequence[Verdict]) -> Html:
    columns = list(dict.fromkeys((verdict.adapter, verdict.world_size) for verdict in verdicts))
    found = {(verdict.check, verdict.adapter, verdict.world_size): verdict for verdict in verdicts}
    adapters = Counter(adapter for adapter, _ in columns)
    names = [tag("th", adapter, colspan=count, class_="cell") for adapter, count in adapters.items()]
    head = [
        tag("tr", tag("th", "check"), *names),
        tag("tr", tag("th", "world size"), *(tag("th", size, class_="cell") for _, size in columns), class_="faint"),
    ]
    rows = []
    for family in dict.fromkeys(verdict.family for verdict in verdicts):
        rows.append(tag("tr", tag("th", family, colspan=len(columns) + 1), class_="family", data_family=family))
        for check in dict.fromkeys(verdict.check for verdict in verdicts if verdict.family == family):
            own = [found.get((check, *column)) for column in columns]
            statuses = " ".join(sorted({verdict.status for verdict in own if verdict}))
            cells = map(_cell, own)
            name = tag("td", _name(check))
            rows.append(tag("tr", name, *cells, data_name=check.lower(), data_statuses=statuses, data_family=family))
    table = tag("table", tag("thead", *head), tag("tbody", *rows), class_="matrix")
    return tag("section", tag("h2", "Matrix"), _filters(verdicts), tag("div", table, class_="scroll"))


def _name(check: str) -> Html:
    """A check's name, with possible line breaks after underscores."""
    return tag("code", Html(text(check).replace("_", "_<wbr>")))


def _cell(verdict: Verdict | None) -> Html:
    if verdict is None:
        return tag("td")
    symbol, said = (NOTED_SYMBOL, "note") if verdict.noted else (_SYMBOLS[verdict.status], WORDS[verdict.status])
    told = (verdict.reason, verdict.observation) if verdict.ok else ()
    title = ": ".join(filter(None, (said, "; ".join(filter(None, told)))))
    inside = text(symbol) if verdict.ok else tag("a", symbol, href=f"#{anchor(verdict)}")
    return tag("td", inside, class_=f"cell {verdict.status}", title=title)


def _filters(verdicts: Sequence[Verdict]) -> Html:
    """Filters, shown only by the script, because they need it."""
    used = {verdict.status for verdict in verdicts}
    only_bad = any(not verdict.ok for verdict in verdicts)
    boxes = [
        tag(
            "label",
            Html(f'<input type="checkbox" value="{status}"{"" if status == "skipped" and only_bad else " checked"}> '),
            tag("span", f"{_SYMBOLS[status]} {words}", class_=status),
        )
        for status, words in WORDS.items()
        if status in used
    ]
    search = Html('<input type="search" placeholder="part of a check\'s name" aria-label="part of a check\'s name">')
    return tag("div", search, *boxes, tag("output", class_="faint"), class_="filters", hidden=True)


# ----------------------------------------------------------------------------------------------------- the rest


def _not_judged(verdicts: Sequence[Verdict]) -> list[Html]:
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for verdict in verdicts:
        if verdict.status in ("skipped", "expected_failure"):
            reasons.setdefault((verdict.adapter, verdict.reason), {})[verdict.check] = None
    left_out = Counter(part for verdict in verdicts for part in verdict.not_covered)
    if not reasons and not left_out:
        return []
    rows = [
        tag("tr", tag("td", adapter), tag("td", reason), tag("td", str(len(checks)), title=", ".join(checks)))
        for (adapter, reason), checks in reasons.items()
    ]
    head = tag("thead", tag("tr", *(tag("th", name) for name in ("implementation", "because", "checks"))))
    parts = [tag("div", tag("table", head, tag("tbody", *rows)), class_="scroll")] if rows else []
    if left_out:
        shown = (f"{part}: {counted(count, 'verdict')}" for part, count in sorted(left_out.items()))
        parts.append(tag("p", "Not tried by checks that passed:"))
        parts.append(tag("ul", *(tag("li", text) for text in shown)))
    return [tag("section", tag("h2", "Not judged, or failed as declared"), *parts)]


def _how_it_was_run(results: Results) -> Html:
    here = results.environment
    rows = {
        "Python": here.python,
        "platform": f"{here.platform}, {here.processor}, {here.cores} cores visible",
        "packages": ", ".join(f"{name} {version}" for name, version in here.packages.items()),
        **{name: "none" if value is None else value for name, value in results.settings.items()},
    }
    table = tag("table", *(tag("tr", tag("th", name), tag("td", value)) for name, value in rows.items()))
    note = "A pass means that no drawn Job was a counterexample. A pass is not a proof."
    return tag(
        "section", tag("h2", "How this was run"), tag("div", table, class_="scroll"), tag("p", note, class_="faint")
    )


def _asset(name: str) -> str:
    return (files(__name__.rpartition(".")[0]) / name).read_text(encoding="utf-8")


def _digest(asset: str) -> str:
    """A digest for the page's content security policy, which allows only this text."""
    return base64.b64encode(hashlib.sha256(asset.encode()).digest()).decode()
