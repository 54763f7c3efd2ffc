"""Skips checks that have passed while nothing has changed: `ddpcheck check --cache FOLDER`.

The key of a verdict: the contents of the adapter's files, of ddpcheck and of the check; the versions of Python and all
installed packages; the code of packages in editable mode; and the settings. Only passes are kept. Other influences are
not seen, such as environment variables, the machine, or files outside the adapter's folder or package.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ..storage.files import write_atomically
from ..verdict import Verdict
from .check_runner import Settings
from .plan import RANKS_START, Item

UNCHANGED = "it passed before, and nothing has changed since (--cache)"
_CODE = ("*.py", "*.so")
_MOST_FILES = 20_000


class VerdictCache:
    """The verdicts in a folder. ValueError if an adapter's folder has too many files to read."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder = folder
        launcher = settings.launcher
        self._common = json.dumps(
            [
                sorted(f"{found.name} {found.version}" for found in distributions()),
                [sys.version, platform.platform()],
                [settings.profile.name, settings.profile.effort, settings.deadline, settings.random_seed],
                [str(settings.level), repr(launcher) if launcher else ""],
                _contents([Path(__file__).parents[1], *_editable()]),
            ]
        )
        self._trees: dict[str, str] = {}

    def known(self, items: Iterable[Item]) -> dict[str, Verdict]:
        """The verdicts of items that need not run, by the items' names.

        check_ranks_start runs anyway if any other check runs.
        """
        found: dict[str, Verdict] = {}
        groups: dict[tuple[str, int], list[Item]] = {}
        for item in items:
            groups.setdefault((item.reference, item.world_size), []).append(item)
        for group in groups.values():
            passed = {
                item.name: verdict for item in group if not item.skip and (verdict := self._read(item)) is not None
            }
            if any(item.name not in passed and not item.skip for item in group):
                passed = {name: verdict for name, verdict in passed.items() if verdict.check != RANKS_START.name}
            found |= passed
        return found

    def keep(self, item: Item, verdict: Verdict) -> None:
        """Remember a pass. UnwritableFile if the folder cannot be written."""
        if verdict.status == "passed":
            write_atomically(self._file(item), json.dumps(verdict.to_plain()))

    def _read(self, item: Item) -> Verdict | None:
        try:
            verdict = Verdict.from_plain(json.loads(self._file(item).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # as if it had not been stored
        return replace(verdict, reason=UNCHANGED) if verdict.status == "passed" else None

    def _file(self, item: Item) -> Path:
        parts = [item.reference, str(item.world_size), item.check.name, self._tree(item.reference)]
        parts += [self._tree(f"{item.check.function.__module__}:"), self._common]
        return self._folder / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}.json"

    def _tree(self, reference: str) -> str:
        if reference not in self._trees:
            self._trees[reference] = _contents(_roots(reference.rpartition(":")[0]))
        return self._trees[reference]


def _editable() -> list[Path]:
    """The folders of packages in editable mode, whose code changes without their version."""
    origins = [json.loads(found.read_text("direct_url.json") or "{}") for found in distributions()]
    return sorted(
        Path(url2pathname(urlsplit(each["url"]).path)) for each in origins if each.get("dir_info", {}).get("editable")
    )


def _roots(place: str) -> list[Path]:
    """The folder of a file, or the package that a module belongs to."""
    if place.endswith(".py"):
        return [Path(place).parent]
    spec = importlib.util.find_spec(place.partition(".")[0])
    if spec is None:
        return []
    return [Path(root) for root in spec.submodule_search_locations or ([spec.origin] if spec.origin else [])]


def _contents(roots: Iterable[Path]) -> str:
    """A digest of all code in these folders."""
    digest, count = hashlib.sha256(), 0
    for root in roots:
        for path in _files(root):
            count += 1
            if count > _MOST_FILES:
                raise ValueError(
                    f"--cache looks at all code beside an adapter: {root} has too much; give it a folder of its own"
                )
            digest.update(f"{path.relative_to(root)}\0".encode(errors="surrogateescape"))
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    """Files in a fixed order, without hidden folders, which hold environments and caches."""
    if root.is_file():
        yield root
        return
    for pattern in _CODE:
        for path in sorted(root.rglob(pattern)):
            inside = path.relative_to(root).parts
            if path.is_file() and not any(part.startswith(".") or part == "site-packages" for part in inside):
                yield path
