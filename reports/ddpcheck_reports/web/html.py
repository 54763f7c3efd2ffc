"""HTML as values: a text in an element is escaped, unless an element made it."""

from __future__ import annotations

import html

from ddpcheck.printable_text import printable


class Html(str):
    """Text that is already HTML."""

    __slots__ = ()


def text(value: object) -> Html:
    """Any text as HTML, with control characters as escapes."""
    return value if isinstance(value, Html) else Html(html.escape(printable(str(value))))


def join(parts: object, between: str = "") -> Html:
    """Several texts or elements, one after the other."""
    assert isinstance(parts, (list, tuple))
    return Html(html.escape(between).join(map(text, parts)))


def tag(name: str, *children: object, **attributes: str | int | bool | None) -> Html:
    """An element. Attribute names that are Python keywords end with an underscore; "_" in names becomes "-".

    An attribute of True has no value; an attribute of None or False is left out.
    """
    shown = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inside = join(children)
    return Html(f"<{name}{shown}>{inside}</{name}>")
