"""The catalogue of causes: every entry has a plain sentence, renders with any parameters, and survives a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddpcheck import causes
from ddpcheck.causes import KINDS, Cause, Elements, Kind, machine

REPORTS = Path(__file__).parents[1] / "reports"
HEADLINE_WORDS = 20
SENTENCE_WORDS = 25
RIDDLES = re.compile(
    r"\b(what (is|was|are|were)|whoever|somebody|anybody|nobody|as where|or as|none of which|taken for|went well)\b",
    re.IGNORECASE,
)
"""Words that make a sentence hard to understand."""

PLURAL_OF_ONE = re.compile(
    r"\branks 1\b|(?<!of )\brank 1 (are|have|take|send|wait|write|load)\b"
    r"|(?<!of )\b1 ([a-z]+ )?(micro-batches|batch norms|backwards|numbers|parameters|samples|steps)\b",
    re.IGNORECASE,
)

PRONOUNS = {"It", "Its", "That", "They", "Which"}
"""Words that may not begin a headline: it stands alone, so their noun would be in another sentence."""

IDENTIFIERS = {"relu", "sum"}
"""Words that may begin a sentence in lower case: names of functions, and a parameter in the examples."""
EXAMPLES = {
    int: 2,
    float: 2.0,
    str: "sum",
    bool: True,
    tuple[int, ...]: (0, 1),
    tuple[str, ...]: ("fc1", "fc2"),
    tuple[float, ...]: (0.5, 0.5),
    Elements: Elements(3, 17, 14, 16),
}


BY_TESTS = {
    "undefined-gradient-in-torch": ("test_assertions.py", "operations.UNDEFINED_IN_TORCH("),
    "imports-modules": ("test_assertions.py", "ranks.IMPORTS_MODULES("),
    "dtype-not-handled": ("test_assertions.py", "operations.NEW_DTYPE("),
    "gradient-at-own-initial-values": ("test_oracle.py", "gradients_causes.AT_OWN_INITIAL"),
    "gradient-summed-at-own-initial-values": ("test_oracle.py", "gradients_causes.SUMMED_AT_OWN_INITIAL"),
    "method-missing": ("test_assertions.py", "ranks.METHOD_MISSING("),
    "initial-value-of-other-rank": ("test_wrappers.py", '"buffers_of_last_rank": "initial-value-of-other-rank"'),
    "learning-rate-ends-early": ("test_audit_laws_of_steps.py", '== "learning-rate-ends-early"'),
    "evaluated-models-differ": ("test_audit_laws_of_replicas.py", '== "evaluated-models-differ"'),
    "ranks-wait-for-each-other": ("test_audit_laws.py", '== "ranks-wait-for-each-other"'),
    "message-too-large": ("test_assertions.py", "ranks.MESSAGE_TOO_LARGE("),
}
"""Causes that no fault shows, or only after more than a minute or in some drawn Jobs, with the test that shows each with a
Trace.
"""


def example(kind: Kind) -> Cause:
    return kind(**{name: EXAMPLES[type_] for name, type_ in kind.parameters.items()})


def among_all(is_wrong: Callable[[Kind], object]) -> list[str]:
    """The ids of the kinds that are wrong."""
    return [id for id, kind in sorted(KINDS.items()) if is_wrong(kind)]


def test_ids_are_in_kebab_case() -> None:
    assert among_all(lambda kind: not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", kind.id)) == []


ONE = {"count": 1, "ranks": (1,), "users": (1,)}
"""Values of parameters for which a text has a singular noun and verb."""

ABOVE_ONE = {"accumulation-not-divided", "clip-every-micro-batch", "communication-every-micro-batch"}
"""Causes whose count is never one."""


def test_texts_have_the_number_of_their_values() -> None:
    def is_wrong(kind: Kind) -> bool:
        given: dict[str, Any] = {name: ONE.get(name, EXAMPLES[type_]) for name, type_ in kind.parameters.items()}
        made = kind(**given)
        text = " ".join((made.headline, made.because, made.look))
        return bool(PLURAL_OF_ONE.search(text)) and kind.id not in ABOVE_ONE

    assert among_all(is_wrong) == []
    two = causes.audit.results.CHECKPOINT_BY_SEVERAL(ranks=(0, 2), file="m.pt", line="train.py:3")
    assert two.headline == "Ranks 0, 2 write the same file m.pt."


def test_listed_texts_have_the_form_for_several() -> None:
    kind = causes.audit.accumulation.LAST_WINDOW_NOT_STEPPED
    assert causes.as_listed(kind.headline) == "{count} micro-batches at the end of an epoch are not stepped."
    assert among_all(lambda kind: re.search(r"[#|]", causes.as_listed(kind.headline + kind.because + kind.look))) == []


def test_parts_that_may_come_late_lead_to_the_handles() -> None:
    late = (
        causes.gradients.ONE_RANKS_PART_ONLY,
        causes.values.PARTS_OF_RANKS_MISSING,
        causes.traffic.SENT_AFTER_BACKWARD,
    )
    assert [kind.id for kind in late if "handles" not in kind.look] == []


def test_headlines_are_one_short_sentence() -> None:
    def begins_wrong(kind: Kind) -> bool:
        first, *_ = example(kind).headline.split()
        return first in PRONOUNS or not (first[0].isupper() or not first.isalpha() or first in IDENTIFIERS)

    assert among_all(begins_wrong) == []
    assert among_all(lambda kind: len(example(kind).headline.split()) > HEADLINE_WORDS) == []
    assert among_all(lambda kind: ". " in example(kind).headline or example(kind).headline.count(";") > 1) == []


def test_no_sentence_is_a_riddle() -> None:
    def is_long(sentence: str) -> bool:
        return len(sentence.split()) > SENTENCE_WORDS

    def texts(kind: Kind) -> tuple[str, str, str]:
        cause = example(kind)
        return cause.headline, cause.because, cause.look

    assert among_all(lambda kind: any(map(RIDDLES.search, texts(kind)))) == []
    assert among_all(lambda kind: any(map(is_long, re.split(r"(?<=[.:]) ", example(kind).because)))) == []


def test_causes_survive_a_file() -> None:
    def is_lost(cause: Cause) -> bool:
        return Cause.from_plain(json.loads(json.dumps(cause.to_plain()))) != cause

    assert among_all(lambda kind: is_lost(example(kind))) == []
    assert among_all(lambda kind: is_lost(example(kind).among(Elements(3, 17, 14, 16)).but("possible"))) == []


def test_a_cause_that_this_version_does_not_know_is_kept_and_shown() -> None:
    cause = Cause.from_plain({"id": "of-a-later-version", "parameters": {"rank": 1}, "certainty": "likely"})
    assert cause.headline == "of-a-later-version rank=1"
    assert (cause.because, cause.look) == ("", "")


def test_a_cause_of_some_elements_says_which() -> None:
    kind = next(kind for kind in KINDS.values() if not kind.parameters)
    assert kind().among(Elements(3, 17, 14, 16)).because.endswith("the last 3 of 17 elements.")


@pytest.mark.parametrize(
    ("elements", "words"),
    [
        (Elements(17, 17, 0, 16), "all 17 elements"),
        (Elements(3, 17, 14, 16), "the last 3 of 17 elements"),
        (Elements(3, 17, 4, 6), "elements 4 to 6 of 17"),
        (Elements(2, 17, 4, 9), "2 of 17 elements (first 4, last 9)"),
    ],
)
def test_wrong_elements_are_described_by_their_place(elements: Elements, words: str) -> None:
    assert str(elements) == words


def test_mistakes_in_the_catalogue_are_errors() -> None:
    known = next(iter(KINDS.values()))
    with pytest.raises(ValueError, match="ids are unique"):
        Kind(known.id, "A second one.")
    with pytest.raises(ValueError, match="no such parameter"):
        Kind("names-a-parameter-that-is-not-there", "The factor is {factor}.")
    lacking = next(kind for kind in KINDS.values() if kind.parameters)
    with pytest.raises(TypeError, match="lacks"):
        lacking()
    with pytest.raises(TypeError, match="has no parameter"):
        lacking(**{name: EXAMPLES[type_] for name, type_ in lacking.parameters.items()}, misspelt=1)


def test_every_cause_is_shown() -> None:
    """The pages come from runs of all faults and of all broken scripts; BY_TESTS names the exceptions."""
    faults = (REPORTS / "kill-matrix.md").read_text(encoding="utf-8").partition("## Causes that faults show")[2]
    scripts = (REPORTS / "audit-matrix.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\| `([a-z0-9-]+)` \|", faults, re.MULTILINE))
    shown |= set(re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)+", scripts)) & set(KINDS)
    # adapters cannot show these
    shown |= {kind.id for kind in vars(machine).values() if isinstance(kind, Kind)}
    for cause, (file, made) in BY_TESTS.items():
        assert made in (Path(__file__).parent / file).read_text(encoding="utf-8")
        assert cause not in shown, "a fault shows it by now"
        shown.add(cause)
    assert shown == set(KINDS)
