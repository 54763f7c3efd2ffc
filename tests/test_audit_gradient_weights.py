"""The weights of parts by which a gradient is explained, and how close it must be."""

from __future__ import annotations

import numpy as np
import pytest

from ddpcheck.audit import gradient_weights


def test_weights_of_the_micro_batches_of_a_window() -> None:
    torch = pytest.importorskip("torch")
    from ddpcheck.audit import comparison

    g = torch.Generator().manual_seed(1)
    ranks = [{"0.0": {"parts": [torch.randn(9, generator=g) for _ in range(3)]}} for _ in range(2)]
    means = [sum(kept["0.0"]["parts"][n].double().numpy() for kept in ranks) / 2 for n in range(3)]

    def found(*weights: float, noise: float = 0.0) -> tuple[float, ...]:
        synced = {"0.0": sum(u * mean for u, mean in zip(weights, means, strict=True)) + noise * np.arange(9)}
        return comparison._micro_batches(ranks, synced, {"0.0": 1e-5})

    assert found(4.0, 2.0, 1.0) == pytest.approx((4.0, 2.0, 1.0))
    assert found(1.0, 1.0, 1.0) == (), "they are alike"
    assert found(4.0, 2.0, 1.0, noise=1.0) == (), "they do not explain it"


def test_weights_by_least_squares() -> None:
    g = np.random.default_rng(0)
    terms = [{"a": g.normal(size=20), "b": g.normal(size=3)} for _ in range(3)]
    target = {name: 0.2 * terms[0][name] + 0.3 * terms[1][name] + 0.5 * terms[2][name] for name in ("a", "b")}
    fit = gradient_weights.fit(target, terms)
    assert fit.weights == pytest.approx((0.2, 0.3, 0.5))
    assert max(fit.off.values()) < 1e-12
    target["b"] = target["b"] + 1.0
    assert gradient_weights.fit(target, terms).off["b"] > 0.5


def test_tolerances_come_from_the_noise() -> None:
    whole = {name: np.ones(4) for name in "abc"}
    tolerance, _ = gradient_weights.tolerances(whole, {**whole, "a": np.ones(4) * (1 + 1e-6)}, [whole])
    assert tolerance["a"] > gradient_weights.NOISE * 1.9e-6 > tolerance["b"]
    _, noise = gradient_weights.tolerances(whole, {name: np.zeros(4) for name in "abc"}, [whole])
    assert gradient_weights.order_matters(whole, {name: np.zeros(4) for name in "abc"})
    assert not gradient_weights.order_matters(whole, {name: np.ones(4) * (1 + 1e-6) for name in "abc"})
    assert noise == 0.0, "a loss that depends on the order of samples shows no rounding"


def test_nonfinite_values_match_no_hypothesis() -> None:
    made = gradient_weights.fit({"w": np.array([np.nan, 1.0])}, [{"w": np.ones(2)}])
    assert made.weights == (0.0,)
    assert made.off == {"w": float("inf")}
