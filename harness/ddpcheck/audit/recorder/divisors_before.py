"""Reads in a script's source by which numbers a value was divided before the script reduces it, as in `total / len(data)`.

The value is followed back through conversions, sums over batches, and the arguments of the script's own functions. Where another
operation made it, the way ends. Divisors have the values that they have at the reduction.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch

from .means_over_ranks import DIVISIONS, call_at, function_at, is_world_size, last_name, names, value_of
from .patching import own_caller

_OF_ARGUMENT = frozenset({"tensor", "as_tensor", "scalar_tensor", "FloatTensor", "DoubleTensor", "float", "round"})
_OF_RECEIVER = frozenset(
    {"item", "to", "clone", "detach", "cpu", "cuda", "float", "double", "squeeze", "unsqueeze", "reshape", "view"}
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SAME_NUMBER = frozenset({"float", "int", "max"})
_RANKS = re.compile("world|rank|replica|proc|gpu|shard")
_DEPTH = 16


@dataclass(frozen=True)
class Divided:
    """By what one value that goes into the sum was divided, and where: file and line. length: of a data set, or of anything else;
    1 without a division, None if it is not known. worlds: the power of the world size in the divisor. number: the value of a
    divisor that counts something else, such as tokens; None if it is not known.
    """

    length: float | None = 1.0
    worlds: float = 1.0
    file: str = ""
    line: int = 0
    number: float | None = None

    @property
    def by(self) -> float | None:
        return None if self.length is None else self.length * self.worlds

    @property
    def world(self) -> bool:
        return self.worlds > 1

    def over(self, length: float | None, worlds: float, file: str, line: int, number: float | None) -> Divided:
        """Divided again. Of two lengths, one may be that of a sample, so that their product says nothing."""
        if length is None or self.length is None or 1.0 not in (length, self.length):
            return Divided(None, self.worlds * worlds, file, line, number)
        return Divided(self.length * length, self.worlds * worlds, file, line)


@dataclass(frozen=True)
class _Place:
    """A line of a function that runs. accumulated: whether the value is added to a sum, so that a product with it is a weight of
    samples, not of ranks.
    """

    frame: FrameType
    line: int
    world_size: int
    accumulated: bool = False
    depth: int = 0

    @property
    def file(self) -> str:
        return self.frame.f_code.co_filename

    def moved(self, **changes: Any) -> _Place:
        return replace(self, depth=self.depth + 1, **changes)


def divided_before(call: str, frame: FrameType, world_size: int) -> list[Divided]:
    """One for each value that goes into the tensor of this call; empty if the source is not there."""
    found = call_at(frame.f_code.co_filename, frame.f_lineno, (call, "reduce"))
    if found is None:
        return []
    given = [*found.args, *(each.value for each in found.keywords if each.arg == "tensor")]
    return list(dict.fromkeys(_of(given[0], _Place(frame, frame.f_lineno, world_size)))) if given else []


def _of(expression: ast.expr, place: _Place) -> Iterator[Divided]:
    """What goes into an expression. A constant, such as the zero with which a sum begins, gives nothing."""
    if isinstance(expression, ast.Constant):
        return
    if place.depth > _DEPTH:
        yield Divided(None)
    elif isinstance(expression, ast.BinOp):
        yield from _of_operation(expression, place)
    elif isinstance(expression, ast.Call):
        yield from _of_call(expression, place)
    elif isinstance(expression, (ast.List, ast.Tuple)):
        for each in expression.elts:
            yield from _of(each, place.moved())
    elif isinstance(expression, ast.IfExp):
        yield from _of(expression.body, place.moved())
        yield from _of(expression.orelse, place.moved())
    elif isinstance(expression, (ast.Name, ast.Attribute)):
        yield from _of_name(ast.unparse(expression), place)
    else:
        yield Divided()


def _of_operation(expression: ast.BinOp, place: _Place) -> Iterator[Divided]:
    left, right = expression.left, expression.right
    if isinstance(expression.op, ast.Div):
        yield from _over(_of(left, place.moved()), right, place)
    elif isinstance(expression.op, (ast.Add, ast.Sub)):
        yield from _of(left, place.moved())
        yield from _of(right, place.moved())
    elif isinstance(expression.op, ast.Mult):
        yield from _of_product(left, right, place)
    else:
        yield Divided(None)


def _of_product(left: ast.expr, right: ast.expr, place: _Place) -> Iterator[Divided]:
    for factor, other in ((left, right), (right, left)):
        if isinstance(factor, ast.Constant):
            yield from _of(other, place.moved())
            return
    scaled = any(_mentions_world_size(side, place) for side in (left, right))
    yield Divided() if place.accumulated and not scaled else Divided(None)


def _of_call(expression: ast.Call, place: _Place) -> Iterator[Divided]:
    name, function = last_name(expression.func), expression.func
    if name in DIVISIONS and isinstance(function, ast.Attribute) and len(expression.args) == 1:
        yield from _over(_of(function.value, place.moved()), expression.args[0], place)
    elif name in _OF_ARGUMENT and expression.args:
        yield from _of(expression.args[0], place.moved())
    elif name in _OF_RECEIVER and isinstance(function, ast.Attribute):
        yield from _of(function.value, place.moved())
    else:
        yield Divided()


def _over(values: Iterable[Divided], divisor: ast.expr, place: _Place) -> Iterator[Divided]:
    if isinstance(divisor, ast.Constant):
        yield from values
        return
    length, worlds = _factors(divisor, place)
    for each in values:
        yield each.over(length, worlds, place.file, divisor.lineno, _number(divisor, place.frame))


def _of_name(name: str, place: _Place) -> Iterator[Divided]:
    """What the function has put into the name up to the line, in order, or what its caller gives."""
    function = function_at(place.file, place.line)
    if function is None:
        yield Divided(None)
        return
    earlier = sorted((each for each in _statements(function) if each.lineno < place.line), key=lambda each: each.lineno)
    last = max((number for number, each in enumerate(earlier) if _assigns(each, name)), default=None)
    found = [] if last is not None else list(_of_argument(name, function, place))
    for node in earlier[last:]:
        before = place.moved(line=node.lineno)
        if isinstance(node, ast.Assign) and _assigns(node, name):
            found = list(_of(node.value, before.moved(accumulated=place.accumulated or names(node.value, name))))
        elif isinstance(node, ast.AugAssign) and ast.unparse(node.target) == name:
            found = list(_changed(found, node, before))
        elif divisor := _in_place_divisor(node, name):
            found = list(_over(found, divisor, before))
    yield from found or [Divided()]


def _assigns(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets)


def _changed(found: list[Divided], node: ast.AugAssign, before: _Place) -> Iterable[Divided]:
    if isinstance(node.op, (ast.Add, ast.Sub)):
        return [*found, *_of(node.value, before.moved(accumulated=True))]
    if isinstance(node.op, ast.Div):
        return _over(found, node.value, before)
    return found if isinstance(node.value, ast.Constant) else [Divided(None)]


def _in_place_divisor(node: ast.stmt, name: str) -> ast.expr | None:
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and len(call.args) == 1:
        return call.args[0] if call.func.attr in DIVISIONS and ast.unparse(call.func.value) == name else None
    return None


def _statements(function: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a function or module, without those of functions in it."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.stmt) and not isinstance(child, _FUNCTIONS):
            yield child
            yield from _statements(child)


def _of_argument(name: str, function: ast.AST, place: _Place) -> Iterator[Divided]:
    """What the caller of the function gives for the parameter of this name; nothing if it has none."""
    if not _is_parameter(name, function):
        return
    given = _given(name, function, place)
    if given is None:
        yield Divided(None)
    else:
        yield from _of(*given)


def _is_parameter(name: str, function: ast.AST) -> bool:
    if not isinstance(function, _FUNCTIONS):
        return False
    every = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return name in (each.arg for each in every)


def _given(name: str, function: ast.AST, place: _Place) -> tuple[ast.expr, _Place] | None:
    """The expression that the caller gives for a parameter, and the caller's place; None if the source does not show it."""
    caller = own_caller(place.frame)
    if not isinstance(function, _FUNCTIONS) or not _is_parameter(name, function) or caller is None:
        return None
    call = call_at(caller.f_code.co_filename, caller.f_lineno, (function.name,))
    if call is None or any(isinstance(each, ast.Starred) for each in call.args):
        return None
    parameters = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    number = parameters.index(name) if name in parameters else len(call.args)
    number -= bool(parameters[:1] == ["self"] and isinstance(call.func, ast.Attribute))
    keywords = {each.arg: each.value for each in call.keywords}
    given = keywords.get(name, call.args[number] if 0 <= number < len(call.args) else None)
    return (given, place.moved(frame=caller, line=caller.f_lineno)) if given is not None else None


def _mentions_world_size(expression: ast.expr, place: _Place) -> bool:
    return any(
        isinstance(node, ast.expr) and is_world_size(node, place.frame, place.world_size)
        for node in ast.walk(expression)
    )


def _factors(divisor: ast.expr, place: _Place) -> tuple[float | None, float]:
    """The length in a divisor, 1 if there is none, and the world size in it, or 1. The length is None if anything else is in it:
    a number that grows with the rank's samples may count the elements of each, and be the number of all samples by chance.
    """
    if _names_world_size(divisor, place):
        return 1.0, float(place.world_size)
    if isinstance(divisor, ast.BinOp) and isinstance(divisor.op, ast.Mult):
        for world, other in ((divisor.left, divisor.right), (divisor.right, divisor.left)):
            if _names_world_size(world, place):
                return _length(other, place), float(place.world_size)
    return _length(divisor, place), 1.0


def _names_world_size(expression: ast.expr, place: _Place) -> bool:
    """Whether it has the world size, and a name that says so: a rank often has two of other things, too."""
    named = not isinstance(expression, ast.Name) or _RANKS.search(expression.id) is not None
    return named and is_world_size(expression, place.frame, place.world_size)


def _length(expression: ast.expr, place: _Place) -> float | None:
    """The value of a call to len(), also through a name; None for others."""
    if place.depth > _DEPTH:
        return None
    if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name) and expression.args:
        if expression.func.id == "len":
            return _length_of(_value(expression.args[0], place.frame))
        return _length(expression.args[0], place.moved()) if expression.func.id in _SAME_NUMBER else None
    if not isinstance(expression, ast.Name) or (function := function_at(place.file, place.line)) is None:
        return None
    if (given := _given(expression.id, function, place)) is not None:
        return _length(*given)
    bound = [each for each in _statements(function) if each.lineno < place.line and _binds(each, expression.id)]
    last = bound[-1] if bound else None
    if len(bound) != 1 or not isinstance(last, ast.Assign):
        return None
    return _length(last.value, place.moved(line=last.lineno))


def _binds(node: ast.stmt, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(each, ast.expr) and names(each, name) for each in targets)


def _length_of(value: Any) -> float | None:
    with suppress(Exception):  # of the script's own
        return float(len(value)) if isinstance(value, Sized) else None
    return None


def _number(expression: ast.expr, frame: FrameType) -> float | None:
    """The number that a name, an attribute, or an element of a tensor or list has at the reduction; None for others."""
    if isinstance(expression, ast.Call):
        receiver = expression.func.value if isinstance(expression.func, ast.Attribute) else None
        if receiver is not None and last_name(expression.func) == "item":
            return _number(receiver, frame)
        same = isinstance(expression.func, ast.Name) and expression.func.id in _SAME_NUMBER
        return _number(expression.args[0], frame) if same and expression.args else None
    value: Any = _value(expression, frame)
    if isinstance(expression, ast.Subscript) and isinstance(expression.slice, ast.Constant):
        every = _value(expression.value, frame)
        with suppress(Exception):  # of the script's own
            value = every[expression.slice.value] if type(every) in (torch.Tensor, list, tuple, dict) else None
    if isinstance(value, torch.Tensor):
        return float(value) if value.numel() == 1 and not value.is_complex() else None
    return float(value) if type(value) in (int, float) else None


def _value(expression: ast.expr, frame: FrameType) -> Any:
    """The value of a name or an attribute; None for others. A property, which may run code of the script, has none."""
    if isinstance(expression, ast.Name):
        return value_of(expression, frame)
    if isinstance(expression, ast.Attribute):
        value = inspect.getattr_static(_value(expression.value, frame), expression.attr, None)
        return None if isinstance(value, property) else value
    return None
