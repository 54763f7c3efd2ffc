"""The conditions of a script, as its source shows them: where the ways of ranks may part.

They are plain data, so that evidence can be judged without the script.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .event_journal import Event

_SHOWN = 60
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_OTHER_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True)
class Block:
    """The first and last line of a body or of an else. returns: whether it has a return or raise. breaks: whether it has a break
    or continue of a loop around it.
    """

    first: int
    last: int
    returns: bool
    breaks: bool

    def holds(self, line: int) -> bool:
        return self.first <= line <= self.last


@dataclass(frozen=True)
class Condition:
    """An if, a loop, or an except clause. function: the first line of the function around it; 0 outside of functions."""

    line: int
    text: str
    loop: bool
    function: int
    blocks: tuple[Block, ...]

    def is_at(self, line: int) -> bool:
        """Whether a line is in the body, or the condition's own."""
        return line == self.line or self.blocks[0].holds(line)


@dataclass(frozen=True)
class Source:
    """The functions and conditions of a file. functions: the first and last line of each."""

    functions: tuple[tuple[int, int], ...]
    conditions: tuple[Condition, ...]

    def function(self, line: int) -> int:
        """The first line of the innermost function around a line; 0 outside of functions."""
        return max((first for first, last in self.functions if first <= line <= last), default=0)

    def loop_around(self, *lines: int) -> Condition | None:
        """The innermost loop around all these lines of a function. A loop's own line belongs to it."""
        return self._innermost(lines[0], lambda loop: all(map(loop.is_at, lines)))

    def loop_of(self, condition: Condition) -> Condition | None:
        """The innermost loop whose body holds the condition."""
        return self._innermost(condition.line, lambda loop: loop.blocks[0].holds(condition.line))

    def _innermost(self, line: int, fits: Callable[[Condition], bool]) -> Condition | None:
        loops = (each for each in self.conditions if each.loop and each.function == self.function(line) and fits(each))
        return max(loops, key=lambda each: each.line, default=None)


def sources_of(events: Iterable[Event], root: Path) -> dict[str, Source]:
    """The files that lines of these events name, relative to `root`. What cannot be read is left out."""
    lines = {line for event in events for line in (event.get("line"), *event.get("callers", ())) if line}
    files = {str(line).rpartition(":")[0] for line in lines}
    found = {file: _read(root / file) for file in sorted(files)}
    return {file: source for file, source in found.items() if source is not None}


def sources_from_plain(data: Mapping[str, Any]) -> dict[str, Source]:
    """Inverse of dataclasses.asdict."""
    return {
        file: Source(
            tuple((first, last) for first, last in source["functions"]),
            tuple(
                Condition(**{**each, "blocks": tuple(Block(**block) for block in each["blocks"])})
                for each in source["conditions"]
            ),
        )
        for file, source in data.items()
    }


def _read(file: Path) -> Source | None:
    try:
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None
    functions = [(n.lineno, n.end_lineno or n.lineno) for n in ast.walk(tree) if isinstance(n, _FUNCTIONS)]
    return Source(tuple(functions), tuple(_conditions(tree, text.splitlines(), 0)))


def _conditions(node: ast.AST, lines: Sequence[str], function: int) -> Iterator[Condition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.If, *_LOOPS, ast.ExceptHandler)):
            blocks = [_block(body) for body in (child.body, getattr(child, "orelse", [])) if body]
            text = lines[child.lineno - 1].strip().rstrip(":")
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."
            yield Condition(child.lineno, shown, isinstance(child, _LOOPS), function, tuple(blocks))
        yield from _conditions(child, lines, child.lineno if isinstance(child, _FUNCTIONS) else function)


def _block(body: Sequence[ast.stmt]) -> Block:
    returns = any(_has(each, (ast.Return, ast.Raise), _OTHER_SCOPES) for each in body)
    breaks = any(_has(each, (ast.Break, ast.Continue), (*_OTHER_SCOPES, *_LOOPS)) for each in body)
    return Block(body[0].lineno, body[-1].end_lineno or body[-1].lineno, returns, breaks)


def _has(node: ast.AST, wanted: tuple[type, ...], outside: tuple[type, ...]) -> bool:
    """Whether a statement holds a wanted one that is not inside one of the others."""
    if isinstance(node, wanted):
        return True
    return not isinstance(node, outside) and any(_has(child, wanted, outside) for child in ast.iter_child_nodes(node))
