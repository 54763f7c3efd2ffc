"""Readers of outside data refuse every input that ever broke one of them, as declared (tests/fuzz)."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from fuzz.campaign import REACHED
from fuzz.run import KEPT
from fuzz.seeds import seeds
from fuzz.targets import TARGETS
from hypothesis import given
from hypothesis import strategies as st

FOUND = [(name, path) for name in TARGETS for path in sorted((KEPT / name).glob("*"))]


@pytest.mark.parametrize(("name", "path"), FOUND, ids=[f"{name}-{path.name}" for name, path in FOUND])
def test_inputs_that_broke_a_reader_are_handled(name: str, path: Path) -> None:
    TARGETS[name](path.read_bytes())


@pytest.mark.parametrize("path", sorted(REACHED.glob("*.zip")), ids=lambda path: path.stem)
def test_inputs_that_reached_new_code_are_read_or_refused(path: Path) -> None:
    with zipfile.ZipFile(path) as packed:
        for name in packed.namelist():
            TARGETS[path.stem](packed.read(name))


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_target_reads_its_seeds(name: str) -> None:
    for data in seeds()[name]:
        TARGETS[name](data)


@pytest.mark.parametrize("name", sorted(TARGETS))
@given(data=st.data())
def test_damaged_seeds_are_read_or_refused(name: str, data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from(seeds()[name]))
    at = data.draw(st.integers(0, len(seed)))
    to = data.draw(st.integers(at, min(len(seed), at + 20)))
    TARGETS[name](seed[:at] + data.draw(st.binary(max_size=20)) + seed[to:])
