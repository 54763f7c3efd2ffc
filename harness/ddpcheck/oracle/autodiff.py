"""Gradients of one weighted sum with respect to many named arrays, by autograd's tracer.

autograd.grad of a function of a dict wraps the arrays in a traced container, which for a small network costs more than
the network. Here every array is a root of the trace, and the backward pass begins with the weights of the sum.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from autograd.core import VJPNode, add_outgrads
from autograd.tracer import isbox, new_box, toposort, trace_stack

from ..seeded_values import Array

_TRACING = threading.Lock()
"""autograd counts active traces per process, so traces in two threads would look nested."""


def gradients(function: Callable[[dict[str, Any]], tuple[Any, Array]], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The derivatives of sum(weights * terms), by name. `function` returns terms and weights of one shape.

    An array is left out if the terms do not depend on it.
    """
    with _TRACING, trace_stack.new_trace() as trace:
        roots = {name: VJPNode.new_root() for name in arrays}
        terms, weights = function({name: new_box(array, trace, roots[name]) for name, array in arrays.items()})
    if not isbox(terms):
        return {}
    reached: dict[Any, Any] = {terms._node: (weights, False)}
    found: dict[Any, Array] = {}
    for node in toposort(terms._node):
        outgoing, _ = reached.pop(node)
        if not node.parents:
            found[node] = outgoing
            continue
        for parent, incoming in zip(node.parents, node.vjp(outgoing), strict=True):
            reached[parent] = add_outgrads(reached.get(parent), incoming)
    return {name: found[root] for name, root in roots.items() if root in found}
