"""Collectives as plain calls; the script computes the expected results from all ranks' inputs."""

from __future__ import annotations

import math

import numpy as np

from ..contract import Determinism, FloatRule
from ..job import AllGather, AllReduce, Barrier, Broadcast, Layout, ReduceScatter, Rounds, SendRecv, TensorSpec, Wait
from ..numerics import gamma
from .literals import bound
from .text import Text, layout_code, poison


def all_reduce(text: Text, position: int, op: AllReduce) -> None:
    if op.in_place:
        _all_reduce_in_place(text, position, op)
        return
    text.comment(position, described("all_reduce" + "_async" * (not op.wait), op.tensor, op.reduction, op.group))
    method = "all_reduce" if op.wait else "all_reduce_async"
    inside = [*_argument(text, op.tensor, position if not op.wait else None)]
    name = _name("argument", position if not op.wait else None)
    call = f'collectives.{method}({name}, "{op.reduction}"{_group(op.group)})'
    if op.wait:
        _members(text, op.group, [*inside, f"got = {call}", *_compared(text, op, f"all_reduce {op.reduction}")])
        _bits(text, op, position)
    else:
        _members(text, op.group, [*inside, f"handle_{position} = {call}"])


def _all_reduce_in_place(text: Text, position: int, op: AllReduce) -> None:
    text.comment(position, described("all_reduce in place,", op.tensor, op.reduction, op.group))
    shape, dtype, layout = op.tensor.shape, op.tensor.dtype, op.tensor.layout
    room = f'collectives.empty({shape}, "{dtype}")'
    if layout == "offset":
        room = f'collectives.empty(({math.prod(shape) + 2},), "{dtype}")[1:-1].reshape({shape})  # keeps no other reference'
    elif layout == "mixed":
        room = f'{room} if rank % 2 else np.empty({shape}, "{dtype}")'
    lines = [
        f"got = {room}",
        f"got[...] = {text.tensor(op.tensor)}[rank]",
        f'collectives.all_reduce_in_place(got, "{op.reduction}"{_group(op.group)})',
        *_compared(text, op, f"all_reduce in place, {op.reduction}")[:-1],
    ]
    _members(text, op.group, lines)
    _bits(text, op, position)


def wait(text: Text, position: int, op: Wait) -> None:
    begun = text.job.operations[op.operation]
    if isinstance(begun, Rounds):
        begun = next(each for each in begun.operations if isinstance(each, AllReduce))
    assert isinstance(begun, AllReduce)
    what = f"wait() of operation {op.operation}, all_reduce {begun.reduction}"
    text.comment(position, f"wait for operation {op.operation}")
    lines = [f"got = handle_{op.operation}.wait()", *_compared(text, begun, what, f"argument_{op.operation}")]
    _members(text, begun.group, lines)


def broadcast(text: Text, position: int, op: Broadcast) -> None:
    name = text.tensor(op.tensor)
    text.comment(position, described("broadcast", op.tensor, f"from rank {op.root}", op.group))
    shared = op.tensor.layout == "shared"
    given = f"{name}[rank]"
    if not shared:
        given += f" if rank == {op.root} else np.full_like({name}[rank], {poison(op.tensor.on(0))})"
    array, remark = _laid_out(text, f"{name}[rank]" if shared else "given", op.tensor)
    lines = [
        f"given = {given}  # the other ranks' values do not matter",
        f"argument = {array}{_remark(remark)}",
        f"got = collectives.broadcast(argument, {op.root}{_group(op.group)})",
        *_moved("broadcast", f"{name}[{op.root}]"),
        *_writable(text, "broadcast"),
        'expect_untouched("broadcast", got, argument, given)',
    ]
    _members(text, op.group, lines)


def all_gather(text: Text, position: int, op: AllGather) -> None:
    text.comment(position, described("all_gather", op.tensor, "", op.group))
    name = text.tensor(op.tensor)
    of = name if op.group is None else f"[{name}[member] for member in {op.group}]"
    lines = [
        *_argument(text, op.tensor),
        f"got = collectives.all_gather(argument{_group(op.group)})",
        *_moved("all_gather", f"np.stack({of})"),
        *_writable(text, "all_gather"),
        f'expect_untouched("all_gather", got, argument, {name}[rank])',
    ]
    _members(text, op.group, lines)


def reduce_scatter(text: Text, position: int, op: ReduceScatter) -> None:
    text.comment(position, described("reduce_scatter", op.tensor, op.reduction, op.group))
    call = f'got = collectives.reduce_scatter(argument, "{op.reduction}"{_group(op.group)})'
    lines = [*_argument(text, op.tensor), call, *_compared(text, op, f"reduce_scatter {op.reduction}")]
    _members(text, op.group, lines)


def barrier(text: Text, position: int, op: Barrier) -> None:
    text.judges = True
    who = "every rank" if op.group is None else f"every rank of {list(op.group)}"
    text.comment(position, f"barrier: no rank may leave before {who} has entered")
    text.add('entered, left = time.monotonic(), float("inf")')
    _members(text, op.group, [f"collectives.barrier({_group(op.group)[2:]})", "left = time.monotonic()"])
    members = list(op.group or range(text.job.world_size))
    text.add(
        "times = from_all_ranks(entered)  # one clock on one machine",
        f'expect("barrier left after all had entered", left >= max(times[member] for member in {members}), True)',
    )


def send_recv(text: Text, position: int, op: SendRecv) -> None:
    text.judges = True
    text.use("collectives")
    name, first = text.tensor(op.tensor), op.tensor
    text.comment(position, described("send and recv", first, f"by pairs {list(op.pairs)}", None))
    array, remark = _laid_out(text, f"{name}[rank]", first)
    shown = first.layout in ("read_only", "shared", "varied")  # no one overwrites it
    blank = "blank" if shown else _laid_out(text, "blank", first)[0]
    value = poison(first.on(0))
    again = [f"        argument[...] = {value}  # the sender may reuse its array, whether it was received or not"]
    text.add(
        f"for source, dest in {list(op.pairs)}:",
        "    if rank == source:",
        f"        argument = {array}{_remark(remark)}",
        "        collectives.send(argument, dest)",
        *([] if shown else again),
        "    elif rank == dest:",
        f"        blank = np.full_like({name}[rank], {value})",
        f"        got = collectives.recv({blank}, source)",
        f'        expect(f"message of rank {{source}}", got, {name}[source])',
        *(f"        {line}" for line in _writable(text, "recv")),
        '        handed_out.append((f"recv from rank {source}", got, np.array(got)))',
    )


def described(what: str, tensor: TensorSpec, how: str, group: tuple[int, ...] | None) -> str:
    among = f", among ranks {list(group)} only" if group is not None else ""
    return f"{what} {how} of {tensor.dtype}{list(tensor.shape)}{among}".replace("  ", " ")


def _argument(text: Text, tensor: TensorSpec, number: int | None = None) -> list[str]:
    array, remark = _laid_out(text, f"{text.tensor(tensor)}[rank]", tensor)
    return [f"{_name('argument', number)} = {array}{_remark(remark)}"]


def _laid_out(text: Text, array: str, tensor: TensorSpec) -> tuple[str, str]:
    """As layout_code(), also if each rank has another layout."""
    if tensor.layout != "varied":
        return layout_code(array, tensor.layout, tensor.shape, tensor.dtype)
    layouts: list[Layout] = [tensor.layout_on(rank) for rank in range(text.job.world_size)]
    each = ", ".join(layout_code(array, layout, tensor.shape, tensor.dtype)[0] for layout in layouts)
    return f"[{each}][rank]", f"by ranks: {', '.join(layouts)}"


def _compared(text: Text, op: AllReduce | ReduceScatter, what: str, argument: str = "argument") -> list[str]:
    text.judges = True
    name = text.tensor(op.tensor)
    members = op.group or tuple(range(text.job.world_size))
    of = name if op.group is None else f"[{name}[member] for member in {op.group}]"
    want, within, remark = _reduced(op.tensor, op.reduction, of, len(members))
    if tight := _tight(text, op, of, len(members)):
        shown, want, within, remark = tight
        lines = [f"want = {want}", f"within = {within}  # {remark}", f'expect("{what}", {shown}, want, within=within)']
        return [*lines, *_writable(text, what), f'expect_untouched("{what}", got, {argument}, {name}[rank])']
    if isinstance(op, ReduceScatter):
        index = "rank" if op.group is None else f"{op.group}.index(rank)"
        want, within = (f"np.split({one}, {len(members)})[{index}]" if one else "" for one in (want, within))
    lines = [f"want = {want}"] + ([f"within = {within}  # {remark}"] if within else [])
    lines.append(f'expect("{what}", got, want{", within" * bool(within)})')
    return [*lines, *_writable(text, what), f'expect_untouched("{what}", got, {argument}, {name}[rank])']


def _reduced(tensor: TensorSpec, reduction: str, of: str, size: int) -> tuple[str, str, str]:
    """The reduction in NumPy, the effect of rounding on it ("" if it is exact in any order), and the reason."""
    dtype = np.dtype(tensor.dtype)
    if reduction in ("min", "max"):
        return f"np.{reduction}({of}, axis=0)", "", ""
    exact = dtype.kind != "f" or tensor.values == "powers" if reduction == "prod" else (
        dtype.kind != "f" or (tensor.values != "real" and tensor.step % (size if reduction == "mean" else 1) == 0)
    )  # fmt: skip
    if exact:
        wide = f'dtype="{dtype.name}"' if dtype.kind != "f" else 'dtype="float64"'
        back = "" if dtype.kind != "f" else f'.astype("{dtype.name}")'
        return f"np.{reduction}({of}, axis=0, {wide}){back}", "", ""
    roundings = 2 * size - 2 if reduction == "prod" else size - 1 + (1 if reduction == "sum" else 3)
    factor = bound(gamma(roundings, dtype))
    size_of = f'np.{reduction}(np.abs({of}), axis=0, dtype="float64")'
    return f'np.{reduction}({of}, axis=0, dtype="float64")', f"{factor} * {size_of}", f"{roundings} roundings at most"


def _tight(text: Text, op: AllReduce | ReduceScatter, of: str, size: int) -> tuple[str, str, str, str] | None:
    """The comparison: result, expected value, and the tolerance, if more is promised than the dtype's own roundings."""
    tensor, divisor = op.tensor, size if op.reduction == "mean" else 1
    if isinstance(op, ReduceScatter) or op.reduction not in ("sum", "mean"):
        return None
    if tensor.values == "tiny" and text.capabilities.has(FloatRule.KEEPS_TINY_VALUES):
        unit = f'np.finfo("{tensor.dtype}").smallest_subnormal.astype("float64")'
        within = 0.5 + 2.0**-8 if divisor > 1 else 0.0
        remark = "the sum is exact" + ", and half of the smallest number may be lost where it is divided" * (
            divisor > 1
        )
        shown = f'got.astype("float64") / {unit}'
        return shown, f'np.sum(np.array({of}, "float64") / {unit}, axis=0) / {divisor}', f"{within}", remark
    if tensor.dtype == "float16" and tensor.values == "real" and text.capabilities.has(FloatRule.ROUNDS_FLOAT16_ONCE):
        want = f'np.sum({of}, axis=0, dtype="float64") / {divisor}'
        terms = f'np.sum(np.abs({of}), axis=0, dtype="float64") / {divisor}'
        few = bound(gamma(size + 1, "float32"))
        near = f"np.abs(want) * {2.0**-11 * (1 + 2.0**-8)} + {2.0**-25} + {few} * {terms}"
        return "got", want, near, "one rounding to float16, and some to float32 before"
    return None


def _bits(text: Text, op: AllReduce, position: int) -> None:
    """Rounded sums must have the same bits on all ranks, and in repeated calls."""
    *_, remark = _reduced(op.tensor, op.reduction, "", len(op.group or range(text.job.world_size)))
    if not remark or op.group is not None:
        return
    if text.capabilities.world.equal_bits_on_ranks and text.job.world_size > 1:
        text.add('expect_same_bits_on_all_ranks("all_reduce", got)')
    twins = [other for other, made in enumerate(text.job.operations) if made == op]
    if len(twins) > 1 and (text.capabilities.world.determinism >= Determinism.BETWEEN_CALLS):
        if position == twins[0]:
            text.add(f"result_{position} = got.copy()")
        else:
            text.add(f'expect("the same as from operation {twins[0]}", got, result_{twins[0]}, bits=True)')


def _moved(what: str, want: str) -> list[str]:
    """Expected values that are copied, not computed, so that even the sign of zero stays."""
    return [f'expect("{what}", got, {want}, bits=True)']


def _writable(text: Text, what: str) -> list[str]:
    """The comparison of writability, if it is promised."""
    line = f'expect("result of {what} can be written to", got.flags.writeable, True)'
    return [line] * text.capabilities.collectives.writable_results


def _members(text: Text, group: tuple[int, ...] | None, lines: list[str]) -> None:
    text.use("collectives")
    text.judges = True
    if group is None:
        text.add(*lines)
    else:
        text.add(f"if rank in {group}:", *(f"    {line}" for line in lines))


def _group(group: tuple[int, ...] | None) -> str:
    return "" if group is None else f", group={list(group)}"


def _name(name: str, number: int | None) -> str:
    return name if number is None else f"{name}_{number}"


def _remark(remark: str) -> str:
    return f"  # {remark}" if remark else ""
