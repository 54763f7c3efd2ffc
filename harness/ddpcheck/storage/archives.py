"""Archives of arrays (.npz) from outside: nothing is unpickled, and every kind of damage raises UnreadableFile."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from ..seeded_values import Array
from .files import UnreadableFile

_DAMAGED = (
    # errors of zipfile: RuntimeError for encrypted parts, NotImplementedError for unsupported compression
    *(
        OSError,
        EOFError,
        zipfile.BadZipFile,
        RuntimeError,
        NotImplementedError,
        zlib.error,
        lzma.LZMAError,
        struct.error,
    ),
    # errors of NumPy's array header, which may claim terabytes
    *(ValueError, KeyError, TypeError, SyntaxError, tokenize.TokenError, OverflowError, MemoryError),
)


def read_arrays(path: Path, advice: str = "") -> dict[str, Array]:
    """All arrays of an archive by name. UnreadableFile with `advice` if the file is no archive; FileNotFoundError if
    missing.
    """
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("the file is a single array, not an archive")
            return {name: _array(file, name) for name in file.files}
    except FileNotFoundError:
        raise
    except _DAMAGED as error:
        reason = str(error) or type(error).__name__
        raise UnreadableFile(f"{path} cannot be read: {reason}" + (f"; {advice}" if advice else "")) from error


def _array(file: np.lib.npyio.NpzFile, name: str) -> Array:
    found = file[name]
    if not isinstance(found, np.ndarray):  # NumPy returns bytes for a part that is not an array
        raise TypeError(f"the part {name!r} is not an array")
    return found
