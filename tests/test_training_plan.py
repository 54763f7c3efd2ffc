"""Training plans: files, options, steps and error messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from training_data import write_idx
from training_in_threads import PROMISES, small_digits

from ddpcheck.contract import TYPICAL
from ddpcheck.training.datasets import DataError, DataSet, digits, load, mnist
from ddpcheck.training.options import arguments_of, plan_of, plan_options
from ddpcheck.training.plan import TrainingPlan, UnusablePlan, windows


@pytest.fixture(scope="module")
def data() -> DataSet:
    return small_digits()


# ----------------------------------------------------------------------------------------------------------------- data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Small MNIST files: 6 training and 3 test images of 2 x 2 pixels, some files gzipped."""
    for part, count, suffix in (("train", 6, ".gz"), ("t10k", 3, "")):
        images = np.arange(count * 4).reshape(count, 2, 2) * 10
        write_idx(tmp_path / f"{part}-images-idx3-ubyte{suffix}", images)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", np.arange(count) % 3)
    return tmp_path


def test_digits_are_split_always_in_the_same_way_into_features_from_0_to_1() -> None:
    pytest.importorskip("sklearn", reason="digits come with scikit-learn")
    found, again = digits(), digits("float64")
    assert (len(found.train), len(found.test), found.features, found.classes) == (1437, 360, 64, 10)
    assert found.train.inputs.dtype == np.float32
    assert found.train.labels.dtype == np.int64
    assert found.train.inputs.min() == 0
    assert found.train.inputs.max() == 1
    np.testing.assert_array_equal(found.test.inputs, again.test.inputs)  # sixteenths are exact in both
    assert set(found.test.labels.tolist()) == set(range(10))


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"pip install 'ddpcheck\[train\]'"):
        digits()


def test_mnist_is_read_from_plain_and_gzipped_files(folder: Path) -> None:
    found = mnist(folder)
    assert (len(found.train), len(found.test), found.features, found.classes) == (6, 3, 4, 3)
    np.testing.assert_array_equal(found.test.inputs[1], np.array([40, 50, 60, 70], np.float32) / np.float32(255))
    np.testing.assert_array_equal(found.train.labels, [0, 1, 2, 0, 1, 2])


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "t10k-images-idx3-ubyte").unlink(), "holds neither t10k-images-idx3-ubyte nor"),
        (lambda f: truncate(f / "t10k-images-idx3-ubyte"), "should hold 3 x 2 x 2 bytes, but holds 11"),
        (lambda f: truncate(f / "train-images-idx3-ubyte.gz"), "cannot be read"),
        (lambda f: (f / "t10k-labels-idx1-ubyte").write_bytes(b"<html>"), "is not an IDX file"),
        (lambda f: (f / "t10k-labels-idx1-ubyte").write_bytes(b""), "is not an IDX file"),
        (lambda f: write_idx(f / "t10k-labels-idx1-ubyte", np.zeros((3, 2, 2))), "are images and labels swapped"),
        (lambda f: write_idx(f / "t10k-labels-idx1-ubyte", np.zeros(3), kind=13), "type 0x0d in 1 dimensions"),
        (lambda f: write_idx(f / "t10k-labels-idx1-ubyte", np.zeros(4)), "3 t10k images, but 4 labels"),
    ],
)
def test_a_spoilt_data_folder_is_an_error_that_says_how(
    folder: Path, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(folder)
    with pytest.raises(DataError, match=message):
        mnist(folder)


def test_a_missing_data_folder_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder .*--data-dir"):
        load("mnist", tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"--data-dir"):
        load("mnist")


# ----------------------------------------------------------------------------------------------------------------- plan


@pytest.mark.parametrize("length", [0, 1, 7, 24, 25, 95, 96])
@pytest.mark.parametrize(("batch_size", "accumulation"), [(8, 1), (8, 3), (1, 4), (50, 2)])
def test_windows_hold_every_sample_once_in_equal_micro_batches(length: int, batch_size: int, accumulation: int) -> None:
    steps = windows(length, batch_size, accumulation)
    held = [index for parts in steps for part in parts for index in range(length)[part]]
    assert held == list(range(len(held)))
    assert length - len(held) < accumulation
    for parts in steps:
        assert len(parts) == accumulation
        assert len({part.stop - part.start for part in parts}) == 1
        assert 0 < parts[0].stop - parts[0].start <= batch_size


def test_learning_rate_warms_up_to_its_scaled_value() -> None:
    plan = TrainingPlan(lr=0.1, scale_lr=True, warmup_epochs=3)
    assert [plan.learning_rate(epoch, 4) for epoch in range(5)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])
    assert TrainingPlan(lr=0.1).learning_rate(0, 4) == 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"clip": 0.0}, "clip is 0.0"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"warmup_epochs": -1}, "it must be from 0 to"),
        ({"resume": True}, "name the file with --checkpoint"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UnusablePlan, match=message):
        TrainingPlan(**settings)


def test_a_model_that_does_not_fit_the_data_is_refused_with_one_that_does(data: DataSet) -> None:
    with pytest.raises(UnusablePlan, match=r"make it 64-\.\.\.-10"):
        TrainingPlan(model="784-10").model_for(data)


def test_a_plan_names_every_promise_that_it_needs_and_is_not_made() -> None:
    plan = TrainingPlan(clip=1.0, checkpoint="x", model="resnet18", optimizer="adam")
    poor = TYPICAL.of_facets("replica").but(optimizers=frozenset({"sgd"}), world_sizes=frozenset({2}))
    text = "; ".join(plan.unmet(poor, 3))
    for part in ("sampler", "metrics", "adam", "--clip", "--checkpoint", "no model 'resnet18'", "world size 2 only"):
        assert part in text
    assert not TrainingPlan(clip=1.0, checkpoint="x").unmet(PROMISES, 3)


def test_a_plan_goes_through_the_command_line_unchanged() -> None:
    plan = TrainingPlan(
        data="mnist", data_dir="a b", lr=1e-05, clip=0.5, scale_lr=True, resume=True, checkpoint="c.npz", seed=-3,
        compare=False, stop_after=2, options=(("bucket_cap_mb", 0.1), ("name", "x"), ("flag", True)),
    )  # fmt: skip
    found = []

    @click.command()
    @plan_options
    def command(**values: Any) -> None:
        found.append(plan_of(values))

    command.main(arguments_of(plan), standalone_mode=False)
    command.main([], standalone_mode=False)
    assert found == [plan, TrainingPlan()]
