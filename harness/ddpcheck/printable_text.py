"""Makes texts of adapters and scripts printable: no control characters, no active markup, limited length."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""All control characters except tab and line feed, marks that change the direction of writing, and surrogates."""


def printable(text: str) -> str:
    """The text with control characters as escapes, because a terminal would execute them."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


LONGEST_LINE = 4000
"""The longest line that is printed, in characters; files keep all."""


def cut(text: str, most: int) -> str:
    """At most `most` characters of a text, and the number of characters cut. A text that this would not shorten stays whole."""
    shortened = f"{text[:most]} ... ({len(text) - most:,} more characters)"
    return shortened if len(text) > max(most, len(shortened)) else text


def in_markdown(text: str) -> str:
    """The text for a line of markdown, without tags, links, code or emphasis. Tables escape columns."""
    return re.sub(
        r"([\\`*\[\]])", r"\\\1", printable(text).replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
    )


def fenced(text: str, language: str = "text") -> str:
    """A text as a markdown code block, even if the text contains fences."""
    longest = max((len(found) for found in re.findall(r"`{3,}", text)), default=2)
    return f"{'`' * (longest + 1)}{language}\n{printable(text)}\n{'`' * (longest + 1)}"
