"""Steps of models with batch norm, which have no bounds: lines of a script that compute each step's result from the
gradients that the replica shows.
"""

from __future__ import annotations

from ..job import Job, Observe, Step
from .text import Text

_SGD = (
    "    moved, size = velocity.get(name, (0.0, 0.0))",
    "    moved, size = OPTIMIZER.momentum * moved + g, OPTIMIZER.momentum * size + terms",
    "    velocity[name] = moved, size",
)
_ADAM = (
    "    first, second, size, t = moments.get(name, (0.0, 0.0, 0.0, 0))",
    "    (b1, b2), t = OPTIMIZER.betas, t + 1",
    "    first, second, size = b1 * first + (1 - b1) * g, b2 * second + (1 - b2) * g * g, max(size, terms.max())",
    "    moments[name] = first, second, size, t",
    "    moved = first / (1 - b1**t) / (np.sqrt(second / (1 - b2**t)) + OPTIMIZER.eps)",
    "    size = size / OPTIMIZER.eps * (1 + size / OPTIMIZER.eps)  # rounding, larger where the root is small",
)


def between_looks(job: Job, step: int) -> bool:
    """Whether only its own gradient predicts the step at this position, and gradients and parameters are observed
    before it, and parameters after it.
    """
    around = job.operations[max(0, step - 1) : step + 2]
    if job.model is None or "batch_norm" not in job.model.features() or len(around) < 3:
        return False
    before, at, after = around
    return (
        isinstance(at, Step)
        and isinstance(before, Observe)
        and {*before.what} >= {"gradients", "parameters"}
        and isinstance(after, Observe)
        and "parameters" in after.what
    )


def remember(text: Text) -> None:
    """Lines before the step."""
    kept = "name: (np.array(parameters[name], 'float64'), np.array(gradients[name], 'float64')) for name in gradients"
    text.add(f"before = {{{kept}}}")


def compare(text: Text) -> None:
    """Lines after the observation of parameters."""
    text.judges = True
    adam = text.job.optimizer.name == "adam"
    state = "moments" if adam else "velocity"
    text.add(
        f"{state} = locals().get('{state}', {{}})",
        "for name, (p, g) in before.items():  # a step by the gradient that was there, in float64",
        "    terms = abs(g) + OPTIMIZER.weight_decay * abs(p)",
        "    g = g + OPTIMIZER.weight_decay * p",
        *(_ADAM if adam else _SGD),
        "    within = 64 * np.finfo(parameters[name].dtype).eps * (abs(p) + OPTIMIZER.lr * size)",
        '    expect(f"parameter {name}, by the gradient that was there", parameters[name], p - OPTIMIZER.lr * moved, within)',
    )
