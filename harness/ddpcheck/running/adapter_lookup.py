"""Finds an adapter by its reference: an entry point's name, `module:attribute`, or `path/to/file.py:attribute`.

Ranks are other processes, so an adapter must have such a reference; `reference_of` finds the reference of an object.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

from ..contract.adapter import Adapter
from ..contract.rank_context import ENGINE_VARIABLES
from ..contract.validation import problems_of_adapter
from .guarded_import import ImportEnded, guarded_import, short
from .import_trial import unending
from .unknown_names import close_names

GROUP = "ddpcheck.adapters"
_PACKAGES = {"ignite": "pytorch-ignite", "sklearn": "scikit-learn"}
"""Packages that have other names than their modules."""


class UnusableAdapter(Exception):
    """The reference leads to no usable adapter; the message says why, and what to do."""


def known_adapters() -> dict[str, str]:
    """The reference of every adapter that an installed distribution offers, by name."""
    from importlib.metadata import entry_points  # a rank has a full reference, and starts sooner without

    return {entry.name: entry.value for entry in entry_points(group=GROUP)}


def resolve(reference: str, seconds: float | None = None) -> tuple[Adapter, str]:
    """The adapter, and its full reference. UnusableAdapter if there is none, or with all problems if it breaks the
    contract.

    seconds: time limit of an import. With a limit the import cannot end the process, nor print much.
    """
    # a rank gets the full reference and need not read every distribution's entry points
    full = reference if ":" in reference else known_adapters().get(reference, reference)
    place, separator, attribute = full.rpartition(":")
    if not separator or not attribute.isidentifier():
        raise UnusableAdapter(f"{reference!r} is not a known adapter; {_meant(reference)}")
    if place.endswith(".py") and Path(place).is_file() and is_training_script(Path(place)):
        raise UnusableAdapter(f"{place} is a training script, not an adapter; audit it: ddpcheck audit {place}")
    guard = nullcontext() if seconds is None else _tried(place, seconds, installed=full != reference)
    module = _load_file(Path(place), guard) if place.endswith(".py") else _load_module(place, full, guard)
    try:
        adapter = getattr(module, attribute)
    except AttributeError:
        there = [name for name, value in vars(module).items() if isinstance(value, Adapter)]
        what = close_names(attribute, there) if there else "is the adapter defined at module level?"
        raise UnusableAdapter(f"{place} has no attribute {attribute!r}; {what}") from None
    problems = problems_of_adapter(adapter)
    if problems:
        raise UnusableAdapter(f"{full} does not fit the contract: " + "; ".join(problems))
    return adapter, f"{Path(place).resolve()}:{attribute}" if place.endswith(".py") else full


@contextmanager
def _tried(place: str, seconds: float, *, installed: bool) -> Iterator[None]:
    """guarded_import of a module that was first imported in a process of its own, unless an installed adapter's
    module.
    """
    is_file = place.endswith(".py")
    if not installed and place not in sys.modules:
        how = unending(_name_of(Path(place)) if is_file else place, Path(place).resolve() if is_file else None, seconds)
        if how:
            raise ImportEnded(how)
    with guarded_import(place, seconds):
        yield


def names_file(reference: str) -> bool:
    """Whether a reference names a Python file, and not an installed adapter or a module."""
    return reference.rpartition(":")[0].endswith(".py")


_TRAINS = re.compile(r"\.backward\(|optimi[sz]er\.step\(|Trainer\(|\.fit\(")
_RUNS = re.compile(r"^(if __name__ ==|main\(|train\(|\w+\.fit\()", re.MULTILINE)
_ADAPTER = re.compile(r"^\w*adapter\w*\s*[:=]|^import ddpcheck|^from ddpcheck", re.MULTILINE)


def is_training_script(path: Path) -> bool:
    """Whether a file is a training script without an adapter. Judged by its text, since an import may start the
    training.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return bool(_TRAINS.search(text) and _RUNS.search(text)) and not _ADAPTER.search(text)


_DEFINES = re.compile(r"^\w*adapter\w*\s*(:[^=\n]*)?=\s*[\w.]*[aA]dapter\(", re.MULTILINE)


def is_adapter_file(path: Path) -> bool:
    """Whether a file defines an adapter of ddpcheck at module level, and does nothing as a script. Judged by its text."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return bool(_DEFINES.search(text)) and "ddpcheck" in text and not (_TRAINS.search(text) or _RUNS.search(text))


def _meant(reference: str) -> str:
    """Advice for a name that is not an adapter reference."""
    module, _, attribute = reference.rpartition(".")
    own = "name your adapter as module:attribute or path/to/file.py:attribute"
    if attribute == "py" and Path(reference).is_file():
        audit = f"ddpcheck audit {reference}"
        if is_training_script(Path(reference)):
            return f"it is a training script; audit it: {audit}"
        return f"name the adapter in that file, too: {reference}:adapter (for a training script: {audit})"
    if ":" not in reference and _importable(reference):
        return f"name the adapter in that module, too: {reference}:adapter"
    if ":" not in reference and module and _importable(module):
        return f"did you mean {module}:{attribute}?"
    return close_names(reference, known_adapters(), f"; {own}")


def reference_of(adapter: Any) -> str:
    """The reference of an adapter object: `module:attribute`, or the file for modules that ranks cannot import by
    name.
    """
    for name, module in list(sys.modules.items()):
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is adapter:
                file = getattr(module, "__file__", None)
                if name == "__main__" or not _importable(name):
                    if file is None:
                        break
                    return f"{Path(file).resolve()}:{attribute}"
                return f"{name}:{attribute}"
    raise UnusableAdapter(
        f"the adapter {getattr(adapter, 'name', adapter)!r} is not a module attribute: assign it to a module-level name, so that "
        "the ranks, which are other processes, can import it"
    )


def missing_modules(adapter: Adapter) -> list[str]:
    """Modules that the adapter requires and that are not installed."""
    return [name for name in adapter.requires if importlib.util.find_spec(name) is None]


def how_to_install(modules: Sequence[str]) -> str:
    """The pip command that installs these modules."""
    return f"pip install {' '.join(_PACKAGES.get(module, module) for module in modules)}"


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _load_module(name: str, reference: str, guard: AbstractContextManager[None]) -> ModuleType:
    try:
        with _importing(name), guard:
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        file = Path(f"{name}.py")
        what = f"did you mean {file}:{reference.rpartition(':')[2]}?" if file.is_file() else _ELSEWHERE
        raise UnusableAdapter(f"no module {name!r} for {reference!r}; {what}") from error


_ELSEWHERE = "run from its folder, install it, or name its file: path/to/file.py:attribute"


@contextmanager
def _importing(name: str) -> Iterator[None]:
    """Report errors of an import with their line in the module; a missing module stays a ModuleNotFoundError."""
    try:
        yield
    except (Exception, SystemExit, ImportEnded) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if frame.filename != __file__ and not _PYTHONS_OWN.search(frame.filename)]
        place = f" ({inside[-1].filename}, line {inside[-1].lineno})" if inside else ""
        text = f"importing {name} failed: {type(error).__name__}: {short(error)}{place}"
        if isinstance(error, ImportEnded):
            text = f"importing {name} was ended: {error}"
        importer = Path(inside[-1].filename) if inside else Path(name)
        raise UnusableAdapter("; ".join(part for part in (text, _next(error, importer)) if part)) from error


_PYTHONS_OWN = re.compile(r"<frozen|importlib|/argparse\.py$")


def _next(error: BaseException, importer: Path) -> str:
    """Advice for an error during import. importer: the file whose line raised the error."""
    if isinstance(error, ModuleNotFoundError):
        package, _, module = (error.name or "").rpartition(".")
        if package in sys.modules:
            return f"{package} is installed and has no {module}: look at the name, and at the version of {package}"
        return _missing(error.name or "the module", importer)
    if isinstance(error, ImportError) and "no known parent package" in str(error):
        return "it belongs to a package: name it as package.module:attribute, from the folder that holds the package"
    if isinstance(error, SystemExit | ImportEnded):
        return 'an adapter\'s module is imported: put the code that runs it as a script under if __name__ == "__main__"'
    if isinstance(error, KeyError) and error.args and error.args[0] in ENGINE_VARIABLES:
        return "only ranks have that variable, and the driver imports the adapter, too: read the variable in connect()"
    return ""


def _missing(module: str, importer: Path) -> str:
    """Advice for a module that cannot be found. A file's folder is on the path only if the adapter is named by its file."""
    top = module.partition(".")[0]
    beside = importer.with_name(f"{top}.py")
    if beside.is_file() or importer.with_name(top).is_dir():
        return f"{top} is beside {importer.name}, and is found if you name the adapter by its file: {importer}:adapter"
    return f"install {top}, or put {beside.name} beside {importer.name}"


def _name_of(path: Path) -> str:
    """The name under which a file is imported."""
    return f"ddpcheck_file_{path.stem}"


def _load_file(path: Path, guard: AbstractContextManager[None]) -> ModuleType:
    if not path.is_file():
        raise UnusableAdapter(f"there is no file {path}")
    name = _name_of(path)
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ == str(path.resolve()):
        return loaded
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise UnusableAdapter(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.resolve().parent) not in sys.path:
        sys.path.insert(0, str(path.resolve().parent))
    try:
        with _importing(str(path)), guard:
            spec.loader.exec_module(module)
    except UnusableAdapter:
        del sys.modules[name]  # the module is incomplete
        raise
    return module
