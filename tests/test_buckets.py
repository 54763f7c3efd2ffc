"""Buckets of gradients: their layout, and their contents after each reduction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ddpcheck.seeded_values import Array
from ddpcheck_implementations.data_parallel.buckets import Bucket, lay_out

MIB = 1 << 20


def parameters(**shapes: Any) -> dict[str, Array]:
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def names(buckets: tuple[Bucket, ...]) -> list[tuple[str, ...]]:
    return [bucket.names for bucket in buckets]


def filled(bucket: Bucket, **values: float) -> None:
    """Write each gradient to its position, as backward does, or beside it if one exists."""
    for name, value in values.items():
        place = bucket.place(name)
        gradient = np.empty(2) if place is None else place
        gradient[...] = value
        bucket.add(name, gradient, 1.0)


def read(bucket: Bucket) -> dict[str, list[float] | None]:
    found = dict(bucket.gradients())
    return {name: None if array is None else array.tolist() for name, array in found.items()}


# ------------------------------------------------------------------------------------------------------------ layout


@pytest.mark.parametrize(
    ("capacity", "want"),
    [
        (MIB, [("a", "b", "c", "d")]),
        (24, [("a", "b"), ("c",), ("d",)]),
        (23, [("a",), ("b",), ("c",), ("d",)]),
        (0, [("a",), ("b",), ("c",), ("d",)]),
        (104, [("a", "b"), ("c", "d")]),
    ],
)
def test_buckets_fill_in_order_of_arrival(capacity: int, want: list[tuple[str, ...]]) -> None:
    assert names(lay_out(parameters(a=4, b=2, c=(5, 5), d=()), capacity, np.empty)) == want


def test_each_dtype_has_buckets_of_its_own_in_the_order_in_which_they_are_full() -> None:
    mixed = parameters(a=1, c=1, e=1) | {name: np.zeros(1) for name in ("b", "d")}
    mixed = {name: mixed[name] for name in sorted(mixed)}
    assert names(lay_out(mixed, MIB, np.empty)) == [("b", "d"), ("a", "c", "e")]
    assert names(lay_out(mixed, 8, np.empty)) == [("b",), ("a", "c"), ("d",), ("e",)]


# ----------------------------------------------------------------------------------------------------------- contents


def test_gradients_are_views_of_one_flat_array_that_the_transport_made() -> None:
    made: list[Array] = []

    def empty(shape: tuple[int, ...], dtype: str) -> Array:
        made.append(np.full(shape, np.nan, dtype))
        return made[-1]

    (bucket,) = lay_out(parameters(a=2, b=2), MIB, empty)
    assert not made  # a replica that never trains allocates no buckets
    filled(bucket, a=1, b=2)
    bucket.reduce(lambda flat: flat.__imul__(2))
    assert made[0].tolist() == [2, 2, 4, 4, 2, 2]  # the flags behind the elements
    assert np.shares_memory(made[0], np.asarray(bucket.gradients()["b"]))
    for _ in range(3):
        bucket.zero_grad()
        filled(bucket, a=1, b=2)
        bucket.reduce(lambda flat: None)
    assert len(made) == 1


def test_unused_parameters_count_as_zero_and_flags_tell_use_on_any_rank() -> None:
    (bucket,) = lay_out(parameters(a=2, b=2, c=2), MIB, lambda shape, dtype: np.full(shape, 7, dtype))
    filled(bucket, a=1)

    def with_another_rank(flat: Array) -> None:
        assert flat.tolist() == [1, 1, 0, 0, 0, 0, 1, 0, 0]
        flat += np.array([0, 0, 4, 4, 0, 0, 0, 1, 0], np.float32)
        flat /= 2

    bucket.reduce(with_another_rank)
    assert read(bucket) == {"a": [0.5, 0.5], "b": [2, 2], "c": None}
    bucket.zero_grad()
    assert read(bucket) == {"a": None, "b": None, "c": None}


def test_only_local_gradients_are_reduced_and_are_added_to_the_reduced_ones() -> None:
    (bucket,) = lay_out(parameters(a=2, b=2), MIB, np.empty)
    filled(bucket, a=1)
    filled(bucket, a=2)
    assert read(bucket) == {"a": [3, 3], "b": None}
    bucket.reduce(lambda flat: flat.__imul__(10))
    filled(bucket, a=1, b=1)
    assert read(bucket) == {"a": [31, 31], "b": [1, 1]}
    bucket.scale(2)
    bucket.reduce(lambda flat: flat.__imul__(10))
    assert read(bucket) == {"a": [80, 80], "b": [20, 20]}
