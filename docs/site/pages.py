"""Pages that are made from the code when the site is built: command line, checks, causes, pytest, adapters of libraries."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from ddpcheck import causes, parametrize_with_checks
from ddpcheck.causes import Kind, as_listed
from ddpcheck.checks import Check
from ddpcheck.cli import COMMANDS, main
from ddpcheck.docstrings_from_source import docstring
from ddpcheck.running.fault_runs import KnownFault, installed_faults
from ddpcheck.running.plan import installed_checks
from ddpcheck.storage.markdown_table import markdown_table
from ddpcheck.testing import pytest_plugin

ROOT = Path(__file__).parents[2]
MANY_HEADINGS = ("reference/checks.md", "reference/causes.md")
"""Pages with so many headings that a list of them helps nobody; the search finds them."""

# ----------------------------------------------------------------------------------------------------- command line


def command_line() -> str:
    """Every command with its options, as its help has them."""
    parts = ["# Command line", _paragraphs(main.help or ""), "`ddpcheck COMMAND --help` shows the same in a terminal."]
    context = click.Context(main, info_name="ddpcheck")
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        parts += _command(command, click.Context(command, info_name=name, parent=context), level=2)
    return "\n\n".join(parts) + "\n"


def _command(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    yield f"{'#' * level} {context.command_path}"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```"
    yield _paragraphs(command.help or "")
    rows = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    if rows := [row for row in rows if not row[0].startswith("-h")]:
        yield markdown_table(("option", "meaning"), ((f"`{option}`", _escaped(text)) for option, text in rows))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _command(below, click.Context(below, info_name=name, parent=context), level + 1)


def _paragraphs(text: str) -> str:
    """A help text: paragraphs, and those that click leaves as they are as code."""
    parts = re.split(r"\n\s*\n", textwrap.dedent(text).strip())
    return "\n\n".join(
        f"```sh\n{textwrap.dedent(part.replace(chr(8), '').strip(chr(10)))}\n```" if "\b" in part else _escaped(part)
        for part in parts
    )


# ----------------------------------------------------------------------------------------------------- checks


def checks() -> str:
    """Every law by family, with its needs, a fault that it catches, and its source."""
    every, shown = installed_checks(), _fault_of_each_check(installed_faults())
    families = list(dict.fromkeys(check.family for check in every))
    parts = [
        "# Checks",
        f"{len(every)} checks in {len(families)} families. Each has a law, the promises that an implementation must make for the "
        "check to run, and a faulty adapter that the check catches.",
        "Families: " + ", ".join(f"[{family}](#{family.replace('_', '-')})" for family in families) + ".",
    ]
    for family in families:
        parts.append(f"## {family} {{ #{family.replace('_', '-')} }}")
        parts += [_check(check, shown.get(check.name)) for check in every if check.family == family]
    return "\n\n".join(parts) + "\n"


def _check(check: Check, fault: KnownFault | None) -> str:
    needs = ", ".join(f"`{need}`" for need in check.needs) or "nothing"
    lines = [f"### `{check.name}` {{ #{check.name} }}", "", _escaped(check.sentence), "", f"- needs: {needs}"]
    if fault is not None:
        where = "; seen in " + ", ".join(map(_seen, fault.seen_in)) if fault.seen_in else ""
        lines.append(f"- catches, for example: `{fault.name}` (`ddpcheck faults {fault.family}`){where}")
    lines.append(f"- source: `{_source(check)}`")
    return "\n".join(lines)


def _source(check: Check) -> str:
    path = Path(inspect.getsourcefile(check.function) or "").resolve()
    inside = next((path.relative_to(root) for root in path.parents if root.name.startswith("ddpcheck")), path)
    return f"{check.function.__module__.partition('.')[0]}/{inside}" if not inside.is_absolute() else path.name


def _seen(place: str) -> str:
    return f"<{place}>" if "://" in place else f"`{place}`"


def _fault_of_each_check(faults: Sequence[KnownFault]) -> dict[str, KnownFault]:
    """For each check one fault that it must catch: if possible one of which it is the first check, and of real code."""
    found: dict[str, KnownFault] = {}
    for most in (1, None):
        for fault in sorted(faults, key=lambda fault: not fault.seen_in):
            for name in fault.caught_by[:most]:
                found.setdefault(name, fault)
    return found


# ----------------------------------------------------------------------------------------------------- causes


def catalogue_of_causes() -> str:
    """Every cause by module, with what supports it, what to look at next, and a fault that shows it."""
    shown, families = _fault_of_each_cause(), _families_of_causes()
    number = sum(map(len, families.values()))
    parts = [
        "# Causes",
        f"The {number} causes that a failure can name. A message shows the id in brackets; JSON, JUnit and replay "
        "files carry it. Words in braces are parameters, which a message fills in. "
        "`ddpcheck list causes ID` shows the same in a terminal.",
        "Families: " + ", ".join(f"[{name}](#of-{name.replace('_', '-')})" for name in families) + ".",
    ]
    for name, kinds in families.items():
        parts.append(f"## {name} {{ #of-{name.replace('_', '-')} }}")
        parts += [_cause(kind, shown.get(kind.id)) for kind in sorted(kinds, key=lambda kind: kind.id)]
    return "\n\n".join(parts) + "\n"


def _cause(kind: Kind, fault: str | None) -> str:
    lines = [f"### `{kind.id}` {{ #{kind.id} }}", "", f"**{_escaped(as_listed(kind.headline))}**", ""]
    lines += [f"{_escaped(as_listed(kind.because))}", ""] if kind.because else []
    lines += [f"- look at: {_escaped(as_listed(kind.look))}"] if kind.look else []
    lines += [f"- shown by: {fault}"] if fault else []
    return "\n".join(lines)


def _families_of_causes() -> dict[str, list[Kind]]:
    """The kinds of each module of ddpcheck.causes, which is a family, and of the modules in it."""
    families = {name: _kinds_of(module) for name, module in sorted(_modules_in(causes).items()) if name != "cause"}
    return {name: own for name, own in families.items() if own}


def _kinds_of(module: ModuleType) -> list[Kind]:
    own = [value for value in vars(module).values() if isinstance(value, Kind)]
    return own + [kind for inner in _modules_in(module).values() for kind in _kinds_of(inner)]


def _modules_in(package: ModuleType) -> dict[str, ModuleType]:
    return {
        name: value
        for name, value in vars(package).items()
        if inspect.ismodule(value) and value.__name__.startswith(f"{package.__name__}.")
    }


def _fault_of_each_cause() -> dict[str, str]:
    """By the reports: a fault, or a broken script, whose failure names the cause."""
    faults = (
        (ROOT / "reports" / "kill-matrix.md").read_text(encoding="utf-8").partition("## Causes that faults show")[2]
    )
    scripts = (ROOT / "reports" / "audit-matrix.md").read_text(encoding="utf-8")
    found = {
        name: f"the script `{script}` in the [audit matrix](../reports/audit-matrix.md)"
        for script, first, others in re.findall(
            r"^\| (broken/[\w.]+) \| \w+ \| ([^|]*) \| ([^|]*) \|", scripts, re.MULTILINE
        )
        for name in re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)+", f"{others} {first}")
    }
    found |= {
        name: f"the fault `{fault}` in the [kill matrix](../reports/kill-matrix.md)"
        for name, fault in re.findall(r"^\| `([a-z0-9-]+)` \| ([\w-]+) \|$", faults, re.MULTILINE)
    }
    return found


# ----------------------------------------------------------------------------------------------------- pytest


class _Options:
    """Stands for pytest's parser: keeps the options that the plugin adds."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str]] = []

    def getgroup(self, name: str, description: str) -> _Options:
        return self

    def addoption(self, name: str, **how: Any) -> None:
        default = how.get("default")
        words = f"{name} {how.get('metavar', '')}".strip()
        self.rows.append((f"`{words}`", str(default) if default else "", _escaped(how["help"])))


def pytest_plugin_page() -> str:
    """Options and fixtures of the plugin, and the decorator."""
    options = _Options()
    pytest_plugin.pytest_addoption(options)  # type: ignore[arg-type]  # has the two methods that the plugin calls
    fixtures = [
        (f"`{name}`", _escaped(docstring(_unwrapped(value)).partition("\n\n")[0]))
        for name, value in vars(pytest_plugin).items()
        if isinstance(value, _FIXTURE)
    ]
    return (
        "\n\n".join(
            [
                "# pytest",
                "ddpcheck brings a pytest plugin. "
                "[Adapters, pytest and Python](../plugging-in.md#command-line-pytest-and-python) shows its use.",
                "## Options",
                markdown_table(("option", "default", "meaning"), options.rows),
                "## Fixtures",
                markdown_table(("fixture", "value"), fixtures),
                "## parametrize_with_checks",
                f"```python\nparametrize_with_checks{inspect.signature(parametrize_with_checks)}\n```",
                _escaped(docstring(parametrize_with_checks)),
            ]
        )
        + "\n"
    )


@pytest.fixture
def _any_fixture() -> None: ...


_FIXTURE = type(_any_fixture)


def _unwrapped(fixture: Any) -> Callable[..., Any]:
    found: Callable[..., Any] = inspect.unwrap(fixture)
    return getattr(found, "_get_wrapped_function", lambda: found)()  # from pytest 8.4 on


# ----------------------------------------------------------------------------------------------------- adapters


def adapters() -> str:
    """The adapters of docs/adapters/, each with its first sentence and its text."""
    parts = [
        "# Adapters of libraries",
        "Adapters for libraries that people use, to copy from. [Libraries, and findings](../libraries.md) lists the checks' "
        "findings.",
    ]
    for path in sorted((ROOT / "docs" / "adapters").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts += [
            f"## {path.stem} {{ #{path.stem.replace('_', '-')} }}",
            _escaped((ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]),
            f"```python\n{text.rstrip()}\n```",
        ]
    return "\n\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    """A text of the code in one paragraph of markdown, where no tag, link or emphasis begins."""
    parts = " ".join(text.replace("<", "&lt;").split()).split("`")
    return "`".join(part if number % 2 else re.sub(r"([\\*_\[\]])", r"\\\1", part) for number, part in enumerate(parts))


PAGES: dict[str, Callable[[], str]] = {
    "reference/command-line.md": command_line,
    "reference/checks.md": checks,
    "reference/causes.md": catalogue_of_causes,
    "reference/pytest.md": pytest_plugin_page,
    "adapters/index.md": adapters,
}
"""What makes each page, by its place on the site."""
