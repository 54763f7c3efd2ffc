"""Records random results of Python's and NumPy's module-level functions that the script calls.

The script's own generators, such as numpy.random.default_rng(), are not seen.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import torch

from ..recorded_process import Run
from . import torch_random_draws
from .patching import OWN, is_library, replace

_PYTHON = ("random", "uniform", "randint", "randrange", "gauss", "normalvariate", "betavariate", "expovariate")
_NUMPY = (
    "rand", "randn", "randint", "random", "random_sample", "uniform", "normal", "beta", "choice", "permutation",
    "exponential", "gamma", "poisson", "binomial", "standard_normal", "dirichlet",
)  # fmt: skip


def install(run: Run) -> None:
    for owner, prefix, names in ((random, "random", _PYTHON), (np.random, "numpy.random", _NUMPY)):
        for name in names:
            if hasattr(owner, name):
                replace(owner, name, _watching(run, f"{prefix}.{name}"))


def _watching(run: Run, name: str) -> Any:
    def make(original: Any) -> Any:
        def draw(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            file, recorded = sys._getframe(1).f_code.co_filename, torch_random_draws.of(run).recorded
            if run.loading or not run.started or not recorded or is_library(file) or file.startswith(OWN):
                return result
            return _seen(run, name, result)

        return draw

    return make


def _seen(run: Run, name: str, result: Any) -> Any:
    line = run.line()
    draws = torch_random_draws.of(run)
    value = torch.as_tensor(np.asarray(result))
    if not run.mirrors:
        draws.add(name, line, value)
        return result
    from ..mirror.replayed_random_draws import replayed

    there = replayed(run, draws.key(name, line), value, integer=not value.is_floating_point(), name=name)
    if there is None:
        return result
    array = there.numpy()
    return array.astype(result.dtype) if isinstance(result, np.ndarray) else type(result)(array.item())
