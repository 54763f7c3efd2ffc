"""Training data: scikit-learn's digits, or MNIST from a folder. Rows of features in [0, 1], integer labels.

The split into training and test samples is fixed, so that accuracies of different runs can be compared.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..seeded_values import Array, hashed

_TEST_SHARE_OF_DIGITS = 5
_UNSIGNED_BYTE = 0x08


class DataError(Exception):
    """The data set is missing or damaged; the message gives the remedy."""


@dataclass(frozen=True)
class Samples:
    """inputs (n, features) in [0, 1], labels (n,) in int64."""

    inputs: Array
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class DataSet:
    name: str
    train: Samples
    test: Samples

    @property
    def features(self) -> int:
        return int(self.train.inputs.shape[1])

    @property
    def classes(self) -> int:
        return int(max(self.train.labels.max(), self.test.labels.max())) + 1


def load(name: str, folder: Path | None = None, dtype: npt.DTypeLike = np.float32) -> DataSet:
    """The data set of this name, with features in `dtype`."""
    if name == "digits":
        return digits(dtype)
    if name == "mnist":
        if folder is None:
            raise DataError("mnist is read from files: name their folder with --data-dir")
        return mnist(folder, dtype)
    raise DataError(f"no data set {name!r}; choose digits or mnist")


def digits(dtype: npt.DTypeLike = np.float32) -> DataSet:
    """1797 handwritten digits of 8 x 8 pixels; every fifth of a fixed shuffle is a test sample."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise DataError("digits come with scikit-learn, which is missing; pip install 'ddpcheck[train]'") from None
    pixels, labels = load_digits(return_X_y=True)
    order = np.argsort(hashed(len(labels), 0), kind="stable")
    inputs = (pixels[order] / 16).astype(dtype)
    labels = labels[order].astype(np.int64)
    test = np.arange(len(labels)) % _TEST_SHARE_OF_DIGITS == 0
    return DataSet("digits", Samples(inputs[~test], labels[~test]), Samples(inputs[test], labels[test]))


def mnist(folder: Path, dtype: npt.DTypeLike = np.float32) -> DataSet:
    """MNIST, or any data set in its format, from the four usual files, gzipped or not."""
    return DataSet("mnist", _pair(folder, "train", dtype), _pair(folder, "t10k", dtype))


def _pair(folder: Path, part: str, dtype: npt.DTypeLike) -> Samples:
    images = read_idx(_find(folder, f"{part}-images-idx3-ubyte"), dimensions=3)
    labels = read_idx(_find(folder, f"{part}-labels-idx1-ubyte"), dimensions=1)
    if len(images) != len(labels):
        raise DataError(
            f"{folder}: {len(images)} {part} images, but {len(labels)} labels; they belong to different data sets"
        )
    if not len(images):
        raise DataError(f"{folder}: the {part} files hold no samples")
    inputs = images.reshape(len(images), -1).astype(dtype)
    inputs /= 255
    return Samples(inputs, labels.astype(np.int64))


def _find(folder: Path, name: str) -> Path:
    for place in (folder / name, folder / f"{name}.gz"):
        if place.is_file():
            return place
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; name the folder of MNIST's four files with --data-dir")
    raise DataError(f"{folder} holds neither {name} nor {name}.gz; put MNIST's four files there")


def read_idx(path: Path, *, dimensions: int) -> npt.NDArray[np.uint8]:
    """The array of bytes in an IDX file: 0, 0, type, number of dimensions, their sizes in big-endian, elements."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); download it again") from None
    start = 4 + 4 * dimensions
    if len(data) < start or data[:2] != b"\0\0":
        raise DataError(f"{path} is not an IDX file: it starts with {data[:4]!r}; download it again")
    if data[2] != _UNSIGNED_BYTE or data[3] != dimensions:
        raise DataError(
            f"{path} holds elements of type 0x{data[2]:02x} in {data[3]} dimensions, not unsigned bytes (0x08) in "
            f"{dimensions}; are images and labels swapped?"
        )
    shape = struct.unpack(f">{dimensions}I", data[4:start])
    if 0 in shape:  # NumPy refuses some such shapes, since the other sizes may be huge
        raise DataError(f"{path} holds no elements; download it again")
    if len(data) - start != math.prod(shape):
        sizes = " x ".join(map(str, shape))
        raise DataError(f"{path} should hold {sizes} bytes, but holds {len(data) - start}; download it again")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
