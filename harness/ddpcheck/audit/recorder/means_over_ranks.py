"""Finds reductions that a script turns into a mean over ranks: its source divides the reduced tensor by the world size.

A sum over ranks of values that are sums, or that have weights, is right for ranks with different numbers of samples. Its
values do not show which it is, so the source is read: only what is divided by the world size, and has no weight, is a mean.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

DIVISIONS = frozenset({"div", "div_", "true_divide", "true_divide_"})
_NUMBERS = frozenset({"float", "int"})
_NO_MEANS = frozenset(
    {
        *("f1", "fbeta", "auc", "auroc", "auprc", "precision", "recall", "balanced", "macro", "miou"),
        *("perplexity", "ppl", "bleu", "rmse", "r2", "mcc", "kappa"),
    }
)
"""Metrics whose mean over parts of the samples is not their value over all samples."""


def is_divided_by_world_size(call: str, frame: FrameType, world_size: int) -> bool:
    """Whether the frame, which is in this call, then divides its first argument by the world size, and did not multiply it
    before. False where the source is not there, or shows no division.
    """
    read = _read(frame.f_code.co_filename, frame.f_lineno, call)
    if read.weighted or any(names(divisor, read.tensor) for divisor in read.divisors):
        return False  # a sum over ranks that is divided by another one, as in total / count, is no mean over ranks
    return any(is_world_size(divisor, frame, world_size) for divisor in read.divisors)


def numbers_that_divide(call: str, frame: FrameType) -> list[float]:
    """The plain numbers, such as a count of the rank's samples, by which the result of the call is divided as they are now."""
    read = _read(frame.f_code.co_filename, frame.f_lineno, call)
    names_now = (each for each in read.divisors if isinstance(each, ast.Name) and each.id not in read.assigned_later)
    values = [value_of(each, frame) for each in names_now]
    return [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]


def metric_that_is_no_mean(call: str, frame: FrameType) -> str:
    """The name of a metric, such as F1, that the call reduces, and that is computed after the loop over batches; else empty."""
    return _read(frame.f_code.co_filename, frame.f_lineno, call).metric


@dataclass(frozen=True)
class Read:
    """What the source says of a call's tensor.

    tensor: its expression. divisors: what it is divided by later. weighted: whether it has a weight. metric: its name, if it
    is no mean over samples. assigned_later: names that change after the call.
    """

    tensor: str = ""
    divisors: tuple[ast.expr, ...] = ()
    weighted: bool = False
    metric: str = ""
    assigned_later: frozenset[str] = frozenset()


@functools.cache
def _read(file: str, line: int, call: str) -> Read:
    """Read once, as a loop may reach a call often."""
    function = function_at(file, line)
    made = (
        None if function is None else _call_in(function, line, (call, "reduce"))
    )  # a library's reduce may make the call
    if function is None or made is None or (reduced := _reduced(made)) is None:
        return Read()
    values = list(_assigned(function, reduced, line))
    later = frozenset(
        ast.unparse(target)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and node.lineno > line
        for target in node.targets
    )
    return Read(
        reduced,
        tuple(_divisors(function, reduced, made)),
        any(_has_weight(value) for value in values),
        _metric(function, reduced, values, line),
        later,
    )


def _metric(function: ast.AST, reduced: str, values: Sequence[ast.expr], line: int) -> str:
    """The metric's name, if a loop over batches does not compute it again and again. values: those assigned to the tensor."""
    loops = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(function)
        if isinstance(node, (ast.For, ast.While, ast.AsyncFor)) and not node.lineno <= line <= (node.end_lineno or line)
    ]
    if any(first <= value.lineno <= last for value in values for first, last in loops) or any(map(_is_mean, values)):
        return ""
    for value in values:
        names = [node.id if isinstance(node, ast.Name) else node.attr for node in ast.walk(value)
                 if isinstance(node, (ast.Name, ast.Attribute))]  # fmt: skip
        if found := next((name for name in (*names, reduced) if _is_metric(name)), ""):
            return found
    return ""


def _is_metric(name: str) -> bool:
    return not _NO_MEANS.isdisjoint(name.lower().split("_"))


def _is_mean(value: ast.expr) -> bool:
    """Whether a sum of metrics is divided by a number of batches or samples."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Div):
        return False
    parts = [
        any(isinstance(node, ast.Name) and _is_metric(node.id) for node in ast.walk(side))
        for side in (value.left, value.right)
    ]
    return parts == [True, False]


@functools.cache
def _parsed(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def function_at(file: str, line: int) -> ast.AST | None:
    """The function that holds the line, or the module; None if the source is not there."""
    module = _parsed(file)
    if module is None:
        return None
    functions = [
        node
        for node in ast.walk(module)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(functions, key=lambda node: node.lineno, default=module)


def _reduced(call: ast.Call) -> str | None:
    """The source of the call's tensor."""
    given = [*call.args, *(each.value for each in call.keywords if each.arg == "tensor")]
    return ast.unparse(given[0]) if given else None


def call_at(file: str, line: int, functions: Container[str]) -> ast.Call | None:
    """The call of one of these functions in this line."""
    function = function_at(file, line)
    return _call_in(function, line, functions) if function is not None else None


def _call_in(function: ast.AST, line: int, functions: Container[str]) -> ast.Call | None:
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or last_name(node.func) not in functions:
            continue
        if node.lineno <= line <= (node.end_lineno or node.lineno):
            return node
    return None


def _assigned(function: ast.AST, name: str, line: int) -> Iterator[ast.expr]:
    """What is assigned to the name, or multiplied into it, up to the line."""
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.AugAssign)) and node.lineno < line:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if name in map(ast.unparse, targets):
                if isinstance(node, ast.AugAssign):
                    yield ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
                else:
                    yield node.value


def _has_weight(value: ast.expr) -> bool:
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult)
        and not any(isinstance(side, ast.Constant) for side in (node.left, node.right))
        for node in ast.walk(value)
    )


def _divisors(function: ast.AST, name: str, call: ast.Call) -> Iterator[ast.expr]:
    """What the name is divided by in the call's expression, or after it."""
    for node in ast.walk(function):
        if not isinstance(node, (ast.expr, ast.stmt)) or _end(node) <= (call.lineno, call.col_offset):
            continue
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and ast.unparse(node.target) == name:
            yield node.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and names(node.left, name):
            yield node.right
        elif isinstance(node, ast.Call) and last_name(node.func) in DIVISIONS and node.args and names(node.func, name):
            yield node.args[0]


def _end(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def names(expression: ast.AST, name: str) -> bool:
    """Whether a part of the expression is the name."""
    return any(isinstance(node, ast.expr) and ast.unparse(node) == name for node in ast.walk(expression))


def is_world_size(divisor: ast.expr, frame: FrameType, world_size: int) -> bool:
    if isinstance(divisor, ast.Call):
        if last_name(divisor.func) in _NUMBERS and divisor.args:
            return is_world_size(divisor.args[0], frame, world_size)
        return last_name(divisor.func) == "get_world_size"
    if isinstance(divisor, ast.Attribute):
        return "world_size" in divisor.attr or divisor.attr == "num_processes"
    if isinstance(divisor, ast.Name):
        value = value_of(divisor, frame)
        return type(value) in (int, float) and value == world_size
    return False


def value_of(name: ast.Name, frame: FrameType) -> Any:
    """The value that the name has now; None if it has none."""
    return frame.f_locals.get(name.id, frame.f_globals.get(name.id))


def last_name(function: ast.expr) -> str:
    """The last part of a function's name; empty for a function without one."""
    return str(getattr(function, "attr", getattr(function, "id", "")))
