"""Reads docstrings from the source, so that they also exist under `python -OO`, which strips them."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any


def docstring(documented: Callable[..., Any] | type[Any]) -> str:
    """The docstring of a function or class without indentation; empty if it has none, or no source."""
    if sys.flags.optimize < 2:
        return inspect.getdoc(documented) or ""
    try:
        text = textwrap.dedent(inspect.getsource(documented))
        # ast.parse() strips docstrings, too, from Python 3.14 on
        tree = compile(text, "<source>", "exec", ast.PyCF_ONLY_AST, optimize=0)
    except (OSError, TypeError, SyntaxError):
        return ""
    assert isinstance(tree, ast.Module)
    first = tree.body[0]
    assert isinstance(first, ast.FunctionDef | ast.ClassDef)
    return ast.get_docstring(first) or ""


def sentence(documented: Callable[..., Any] | type[Any]) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(docstring(documented).partition("\n\n")[0].split())
