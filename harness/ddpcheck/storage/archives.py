"""Archives of arrays (.npz) from outside: nothing is unpickled, and one that is damaged is refused in one way."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from ..seeded_values import Array
from .files import UnreadableFile

_DAMAGED = (
    # those of zipfile: RuntimeError for encrypted parts, NotImplementedError for its other kinds of compression
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
    # those of NumPy's header of an array, which may claim terabytes
    *(ValueError, KeyError, TypeError, SyntaxError, OverflowError, MemoryError),
)


def read_arrays(path: Path, advice: str = "") -> dict[str, Array]:
    """All arrays of an archive by name. UnreadableFile with `advice` if it is none; FileNotFoundError if there is no file."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("it holds one array, and is no archive")
            return {name: _array(file, name) for name in file.files}
    except FileNotFoundError:
        raise
    except _DAMAGED as error:
        reason = str(error) or type(error).__name__
        raise UnreadableFile(f"{path} cannot be read: {reason}" + (f"; {advice}" if advice else "")) from error


def _array(file: np.lib.npyio.NpzFile, name: str) -> Array:
    found = file[name]
    if not isinstance(found, np.ndarray):  # NumPy gives bytes for a part that is no array
        raise TypeError(f"its part {name!r} is no array")
    return found
