"""A cause as a value: a stable id, typed parameters and a certainty. Texts are rendered from it.

A `Kind` is one entry of the catalogue. Calling it makes a `Cause`:

    SUMMED = Kind(
        "summed-not-averaged",
        "Values are summed over the ranks, not averaged.",
        because="Every element is exactly {factor:g} x too large at world size {world_size}.",
        look="the division by the world size after the all-reduce",
        factor=float,
        world_size=int,
    )
    cause = SUMMED(factor=2.0, world_size=2)

Nothing compares texts: failures are grouped, and faults are asserted, by `cause.id`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args, get_origin

Certainty = Literal["certain", "likely", "possible"]
"""certain: the values say so and nothing else fits. likely: the first thing that explains all that is wrong. possible: it is
compatible with the values, as much else is.
"""


class Elements(NamedTuple):
    """Which elements of an array are wrong: how many of how many, and the first and last flat index."""

    number: int
    size: int
    first: int
    last: int

    def __str__(self) -> str:
        if self.number == self.size:
            return f"all {self.size} elements"
        if self.number == self.last - self.first + 1:
            if self.last == self.size - 1:
                return f"the last {self.number} of {self.size} elements"
            return f"elements {self.first} to {self.last} of {self.size}"
        return f"{self.number} of {self.size} elements (first {self.first}, last {self.last})"


Parameter = int | float | str | bool | tuple[int, ...] | tuple[str, ...] | tuple[float, ...] | Elements

COMMON: Mapping[str, Any] = {"elements": Elements}
"""Parameters that every kind takes, and that need not be given: the elements that the cause holds for."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something is wrong.

    id: the kind's id, in kebab case. parameters: by the names and types that the kind declares. certainty: how sure it is.
    """

    id: str
    parameters: tuple[tuple[str, Parameter], ...] = ()
    certainty: Certainty = "likely"

    @property
    def headline(self) -> str:
        """The cause in one sentence of at most 20 words; a cause of an unknown kind shows its id and its parameters."""
        kind = self._kind
        if kind is None:
            return " ".join((self.id, *(f"{name}={_shown(value)}" for name, value in self.parameters)))
        return self._rendered(kind.headline)

    @property
    def because(self) -> str:
        """What supports it, with its numbers; empty if the headline says all."""
        kind = self._kind
        values = dict(self.parameters)
        lines = [self._rendered(kind.because)] if kind is not None and kind.because else []
        if kind is not None and "elements" in values and "elements" not in kind.parameters:
            lines.append(f"This holds for {values['elements']}.")
        return " ".join(lines)

    @property
    def look(self) -> str:
        """What to look at next; empty if there is no better advice than the failure itself."""
        kind = self._kind
        return self._rendered(kind.look) if kind is not None else ""

    @property
    def _kind(self) -> Kind | None:
        """The kind; None if it is unknown, or if a file gives the cause too few of the kind's parameters."""
        kind = KINDS.get(self.id)
        return kind if kind is not None and kind.parameters.keys() <= dict(self.parameters).keys() else None

    def get(self, name: str) -> Parameter | None:
        """The parameter of this name; None if the cause has none."""
        return dict(self.parameters).get(name)

    def among(self, elements: Elements) -> Cause:
        """The same cause, for these elements of an array only."""
        values = {**dict(self.parameters), "elements": elements}
        return replace(self, parameters=tuple(sorted(values.items())))

    def but(self, certainty: Certainty) -> Cause:
        """The same cause, as sure as this."""
        return replace(self, certainty=certainty)

    def to_plain(self) -> dict[str, Any]:
        """JSON: the id, the parameters, the certainty, and the headline for readers that have no catalogue."""
        parameters = {name: list(value) if isinstance(value, tuple) else value for name, value in self.parameters}
        return {"id": self.id, "parameters": parameters, "certainty": self.certainty, "headline": self.headline}

    @staticmethod
    def from_plain(data: Mapping[str, Any]) -> Cause:
        """Inverse of to_plain. Ids that this version does not know are kept."""
        kind = KINDS.get(data["id"])
        declared = {**COMMON, **(kind.parameters if kind is not None else {})}
        values = {name: _typed(value, declared.get(name)) for name, value in data["parameters"].items()}
        return Cause(str(data["id"]), tuple(sorted(values.items())), data["certainty"])

    def _rendered(self, template: str) -> str:
        return _Template().vformat(template, (), dict(self.parameters))


Given = Cause | tuple["Given", ...] | None
"""Causes as functions take them: one, several, or none."""


def as_causes(given: Given) -> tuple[Cause, ...]:
    """The causes one after the other."""
    if isinstance(given, Cause):
        return (given,)
    return tuple(cause for each in given or () for cause in as_causes(each))


class Kind:
    """An entry of the catalogue.

    id: stable, unique, kebab case. headline: one sentence of at most 20 words. because: what supports it, in full sentences.
    look: what to look at next, as the object of "look at". parameters: name=type; braces in the texts name them, and a tuple
    is shown with commas. {count:# sample is|# samples are} has a form for one and a form for several. ValueError if the id
    is taken, or if a text names a parameter that is not declared.
    """

    __slots__ = ("because", "certainty", "headline", "id", "look", "parameters")

    def __init__(
        self,
        id: str,
        headline: str,
        *,
        because: str = "",
        look: str = "",
        certainty: Certainty = "likely",
        **parameters: Any,
    ) -> None:
        if id in KINDS:
            raise ValueError(f"there are two kinds of causes with the id {id!r}; ids are unique")
        named = {name for text in (headline, because, look) for name in _fields(text)}
        if unknown := named - {*parameters, *COMMON}:
            raise ValueError(
                f"cause {id!r}: its texts name {', '.join(sorted(unknown))}, but it declares no such parameter"
            )
        self.id: str = id
        self.headline: str = headline
        self.because: str = because
        self.look: str = look
        self.certainty: Certainty = certainty
        self.parameters: dict[str, Any] = parameters
        KINDS[id] = self

    def __call__(self, **values: Parameter) -> Cause:
        """A Cause of this kind. TypeError if parameters are missing or unknown."""
        missing, unknown = self.parameters.keys() - values, values.keys() - {*self.parameters, *COMMON}
        if missing or unknown:
            wrong = [f"lacks {', '.join(sorted(missing))}"] * bool(missing)
            wrong += [f"has no parameter {', '.join(sorted(unknown))}"] * bool(unknown)
            raise TypeError(f"cause {self.id!r} {' and '.join(wrong)}")
        return Cause(self.id, tuple(sorted(values.items())), self.certainty)

    def explains(self, causes: Iterable[Cause]) -> bool:
        """Whether the first of these causes is of this kind."""
        return next((cause.id == self.id for cause in causes), False)


_FORMS = re.compile(r"\{(?P<name>\w+):[^{}|]*\|(?P<several>[^{}|]*)\}")

KINDS: dict[str, Kind] = {}
"""The catalogue: every kind that a module which was imported has declared, by id."""


def as_listed(template: str) -> str:
    """A text of a kind without values: each pair of forms is the one for several."""
    return _FORMS.sub(lambda found: found["several"].replace("#", f"{{{found['name']}}}"), template)


class _Template(string.Formatter):
    """str.format, which shows tuples with commas, and has forms for one and for several."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if "|" in format_spec:
            one, several = format_spec.split("|")
            number = len(value) if isinstance(value, tuple) else value
            return (one if number == 1 else several).replace("#", _shown(value))
        if isinstance(value, tuple) and not isinstance(value, Elements):
            return ", ".join(format(each, format_spec) for each in value)
        return format(str(value) if isinstance(value, Elements) else value, format_spec)


def _fields(template: str) -> Iterable[str]:
    return (name for _, name, _, _ in string.Formatter().parse(template) if name)


def _shown(value: Parameter) -> str:
    return _Template().format_field(value, "")


def _typed(value: Any, declared: Any) -> Parameter:
    """A value of JSON as the type that was declared: lists become tuples."""
    if not isinstance(value, list):
        return value  # type: ignore[no-any-return]
    if declared is Elements:
        return Elements(*value)
    if get_origin(declared) is tuple:
        return tuple(get_args(declared)[0](each) for each in value)
    return tuple(value)
