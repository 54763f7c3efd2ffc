"""What a parameter would be after an update by Adam as others have it, or as it goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..values import Array
from .optimizer import Optimizer
from .rounding import Value


def other_adams(name: str, optimizer: Optimizer, before: Array, gradient: Array) -> Iterator[tuple[str, Array]]:
    """optimizer: its state in front of the update of `before` by `gradient`; arrays have the ranks as first axis."""
    spec, after = optimizer.spec, optimizer.copy()
    after.step(name, Value(before), Value(gradient))
    m, s = (after.state[f"{name}.{part}"].exact for part in "ms")
    step = after.steps[name]

    def corrections(count: int) -> tuple[float, float]:
        first, second = (1 - beta**count for beta in spec.betas)
        return first, second

    def moved(first: float, second: float, eps: float = spec.eps, squares: Array = s) -> Array:
        return np.asarray(before - spec.lr * (m / first) / (np.sqrt(squares / second) + eps))

    first, second = corrections(step)
    missing, early = "Adam's bias correction is missing", moved(first, second, spec.eps / np.sqrt(second))
    hat = "eps is added to the root before its bias is corrected, not after (epsilon hat)"
    yield (f"{missing}, or {hat}" if np.allclose(moved(1, 1), early) else missing), moved(1, 1)
    yield f"Adam's {hat}", early
    inside = before - spec.lr * (m / first) / np.sqrt(s / second + spec.eps)
    yield "Adam's eps is added inside the root, not to it", inside
    yield "Adam's eps is 1e-8, and not the one that was asked for", moved(first, second, 1e-8)
    if step > 1:
        yield "Adam's bias correction counts steps from 1 again", moved(*corrections(1))
    for count in sorted({*optimizer.steps.values()} - {step - 1}):
        yield "Adam's bias correction counts the steps of another parameter", moved(*corrections(count + 1))
    if step > 1:
        one, two = spec.betas
        swapped = "the powers of Adam's two betas, by which its bias is corrected, have changed places, as when they are loaded"
        yield swapped, moved(1 - two ** (step - 1) * one, 1 - one ** (step - 1) * two)
    ahead = (
        ": a step with a gradient of zero came before, or it counts from 2"
        if step == 1
        else ": it counts twice, or shares its count with another parameter, and each adds to it"
    )
    yield f"Adam's bias correction is a step ahead{ahead}", moved(*corrections(step + 1))
    if step == 1:
        return
    old = {part: optimizer.state[f"{name}.{part}"].exact for part in "ms"}
    for part, words in (("m", "first"), ("s", "second")):
        lost = optimizer.copy()
        lost.state[f"{name}.{part}"] = Value(np.zeros_like(old[part]))
        began = lost.step(name, Value(before), Value(gradient)).exact
        yield f"Adam's {words} moment began anew, and the other did not: it is not saved, or not loaded", began
    crossed = optimizer.copy()
    crossed.state |= {f"{name}.m": Value(old["s"]), f"{name}.s": Value(abs(old["m"]))}
    text = "Adam's two moments have changed places, as when they are loaded"
    yield text, crossed.step(name, Value(before), Value(gradient)).exact
    largest = moved(first, second, squares=np.maximum(old["s"], s))
    yield "it is AMSGrad: divided by the largest second moment so far, not by the last", largest
    for part, words in (("m", "first"), ("s", "second")):
        for dtype, bits in (("float16", 11), ("bfloat16", 8)):
            short = optimizer.copy()
            short.state[f"{name}.{part}"] = Value(_rounded(old[part], bits))
            held = short.step(name, Value(before), Value(gradient)).exact
            yield f"Adam's {words} moment is held, or was saved, in {dtype}", held
    if step == 2:  # when the first gradient is still known
        given = old["m"] / (1 - spec.betas[0])
        for betas, words in (((0.9, 0.999), "are 0.9 and 0.999"), (spec.betas[::-1], "have changed places")):
            used = Optimizer(replace(spec, betas=betas), "float64", steps={name: 1})
            used.state = {f"{name}.m": Value((1 - betas[0]) * given), f"{name}.s": Value((1 - betas[1]) * given**2)}
            yield f"Adam's betas {words}", used.step(name, Value(before), Value(gradient)).exact


def _rounded(array: Array, bits: int) -> Array:
    """To a significand of so many bits."""
    significand, exponent = np.frexp(array)
    return np.asarray(np.ldexp(np.rint(significand * 2.0**bits), exponent - bits))
