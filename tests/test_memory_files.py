"""Memory files of a rank: the driver opens both, or neither."""

from __future__ import annotations

import os
from pathlib import Path

from ddpcheck.ranks.memory_files import open_memory_files

NEVER_OPEN = 2**30
"""A descriptor beyond every limit on open files."""


def open_descriptors_of(file: Path) -> int:
    return sum(descriptor.resolve() == file for descriptor in Path("/proc/self/fd").iterdir())


def test_a_second_file_that_cannot_be_opened_leaves_no_descriptor(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    file.touch()
    number = os.open(file, os.O_RDONLY)
    try:
        assert open_memory_files(os.getpid(), (number, NEVER_OPEN)) is None
        assert open_descriptors_of(file) == 1
    finally:
        os.close(number)


def test_both_files_are_opened_and_closed(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    file.touch()
    number = os.open(file, os.O_RDONLY)
    try:
        files = open_memory_files(os.getpid(), (number, number))
        assert files is not None
        assert open_descriptors_of(file) == 3
        files.close()
        assert open_descriptors_of(file) == 1
    finally:
        os.close(number)
