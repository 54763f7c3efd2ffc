"""One side of the comparison: a revision's tree, and the environment in which its ranks run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ddpcheck
from ddpcheck.job import Job
from ddpcheck.ranks.rank_interpreter import Interpreter

_LOOK_WITHIN = 120.0


class Unusable(Exception):
    """A side cannot be measured; the message names the side, the reason and the remedy."""


@dataclass(frozen=True)
class Side:
    """name: base, head, or twin (a second checkout of head). revision: as the user named it. tree: its checkout;
    environment: made by --setup, if the side has one of its own.
    """

    name: str
    revision: str
    home: Interpreter
    tree: Path | None = None
    environment: Path | None = None

    def look(self, jobs: Iterable[Job]) -> Mapping[str, Any]:
        """The report of the side's interpreter (describe_adapter.py). Unusable if it cannot run these Jobs on its code."""
        try:
            done = subprocess.run(
                [self.home.python, "-P", str(Path(__file__).with_name("describe_adapter.py")), self.home.reference],
                cwd=self.home.folder,
                env=os.environ | self.home.variables(),
                input=json.dumps([job.to_plain() for job in jobs]),
                capture_output=True,
                text=True,
                timeout=_LOOK_WITHIN,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unusable(f"{self.name} ({self.revision}): {self.home.python} cannot be run: {error}") from error
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            raise Unusable(f"{self.name} ({self.revision}) has no usable adapter {self.home.reference}: {said[0]}")
        seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        self._judge(seen)
        return seen

    def _judge(self, seen: Mapping[str, Any]) -> None:
        who = f"{self.name} ({self.revision})"
        if seen["unknown"]:
            raise Unusable(
                f"{who}: the ddpcheck of that tree, {seen['harness']}, cannot read these benchmarks "
                f"({seen['unknown'][0]}): it is older than the gate; choose a later --base"
            )
        if seen["missing"]:
            raise Unusable(
                f"{who}: {self.home.python} lacks {', '.join(seen['missing'])}; install it there, or with --setup"
            )
        own = [place for place in (self.tree, self.environment) if place is not None]
        a_file = self.home.reference.rpartition(":")[0].endswith(".py")  # from this tree, or meant for both sides
        if own and not a_file and not any(_inside(seen["adapter"], place) for place in own):
            raise Unusable(
                f"{who}: the adapter comes from {seen['adapter']}, which is not that tree: both sides would be the same code; "
                "name the folders to import from with --path, or build each side with --setup"
            )


def _inside(path: str, folder: Path) -> bool:
    return Path(path).resolve().is_relative_to(folder.resolve())


def source_roots(root: Path, given: Sequence[str]) -> tuple[Path, ...]:
    """The folders to import from, relative to the repository: the given ones, or those from which this process imports,
    the repository itself, and src.
    """
    if given:
        return tuple(Path(path) for path in given)
    here = [Path(entry).resolve() for entry in sys.path if entry]
    # an environment inside the repository is not a source
    places = [path for path in here if path.is_relative_to(root) and not _of_environment(path)]
    found = [path.relative_to(root) for path in places if path.is_dir()] + [Path()]
    return tuple(dict.fromkeys([*found, Path("src")] if (root / "src").is_dir() else found))


def _of_environment(path: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & {*path.parts}) or path.is_relative_to(Path(sys.prefix).resolve())


def path_for(tree: Path, root: Path, roots: Iterable[Path], lent: Path, *, shared: bool) -> tuple[Path, ...]:
    """PYTHONPATH of one side. lent: a folder with only this process's ddpcheck, for a tree without one.

    shared: the interpreter is this process's, so ranks can import its packages outside the repository.
    """
    entries = [entry for entry in sys.path if shared and Path(entry).is_dir()]
    foreign = [Path(entry) for entry in entries if "lib/python" not in entry or "site-packages" in entry]
    outside = [path for path in foreign if not path.resolve().is_relative_to(root)]
    return tuple(dict.fromkeys([*(tree / path for path in roots), lent, *outside]))


def lend(folder: Path) -> Path:
    """A folder that contains only this process's ddpcheck."""
    made = folder / "lent"
    made.mkdir()
    (made / "ddpcheck").symlink_to(Path(ddpcheck.__file__).resolve().parent, target_is_directory=True)
    return made


def moved(reference: str, root: Path, tree: Path) -> str:
    """An adapter's reference in another checkout of its repository."""
    place, _, attribute = reference.rpartition(":")
    if place.endswith(".py") and Path(place).is_relative_to(root):
        return f"{tree / Path(place).relative_to(root)}:{attribute}"
    return reference


def build(tree: Path, python: str, command: str, environment: Path) -> str:
    """Make a virtual environment for one side by a user's command in its tree. Returns its interpreter; Unusable on
    failure.
    """
    bin_folder = environment / "bin"
    variables = os.environ | {"VIRTUAL_ENV": str(environment), "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    variables.pop("PYTHONPATH", None)
    for words in ([python, "-m", "venv", str(environment)], ["/bin/sh", "-c", command]):
        done = subprocess.run(words, cwd=tree, env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-10:])
            raise Unusable(f"{tree.name}: {words[-1]!r} failed with exit status {done.returncode}:\n{last}")
    return str(bin_folder / "python")
