"""The script's lines that the recorder of an audit notes."""

from __future__ import annotations

import inspect
from pathlib import Path

from ddpcheck.audit.recorder.patching import line_that_makes

HERE = Path(__file__)


class Sampler:
    def __init__(self) -> None:
        self.line: str = line_that_makes(self, str(HERE.parent))


class OwnSampler(Sampler):
    def __init__(self) -> None:
        super().__init__()


def test_the_line_that_makes_an_object_is_outside_its_class() -> None:
    for kind in (Sampler, OwnSampler):
        frame = inspect.currentframe()
        made = kind()
        assert frame is not None
        assert made.line == f"{HERE.name}:{frame.f_code.co_firstlineno + 3}"
