"""`ddpcheck list`: adapters, causes, checks, capabilities, launchers and profiles, with a sentence each."""

from __future__ import annotations

from enum import IntEnum

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..causes import KINDS, Kind, as_listed
from ..check_levels import LEVELS, Level
from ..checks import Check
from ..contract import GROUPS, SENTENCES, Capabilities, promises_of
from ..counted_nouns import counted
from ..docstrings_from_source import docstring
from ..running.adapter_lookup import UnusableAdapter, known_adapters, missing_modules, resolve
from ..running.guarded_import import IMPORT_SECONDS
from ..running.launcher_lookup import description, installed_launchers, launcher_named
from ..running.plan import installed_checks
from ..running.profiles import PROFILES
from .console import console
from .options import usage_errors


@click.group("list")
def command() -> None:
    """List adapters, causes, checks, capabilities, launchers or profiles, with a sentence each."""


@command.command()
def adapters() -> None:
    """Implementations that can be checked by name, and whether they can run here."""
    out = console()
    table = _table("adapter", "here", "description")
    for name in sorted(known_adapters()):
        try:
            adapter, _ = resolve(name)
        except UnusableAdapter as error:
            table.add_row(escape(name), "no", escape(str(error)))
            continue
        missing = missing_modules(adapter)
        reason = f"needs {', '.join(missing)}" if missing else adapter.launcher.unavailable()
        table.add_row(
            escape(name), "no" if reason else "yes", escape(adapter.description + (f" ({reason})" if reason else ""))
        )
    out.print(table)
    out.print("\nYour own: ddpcheck check module:attribute, or ddpcheck check path/to/file.py:attribute")


@command.command()
@click.argument("name", required=False)
def checks(name: str | None) -> None:
    """Every law, by family, and what an implementation must promise for it.

    NAME selects a family, or checks with this text in their names. Default: all.
    """
    out = console()
    with usage_errors():
        every = installed_checks()
        families = dict.fromkeys(check.family for check in every)
        found = [check for check in every if name in (None, check.family)]
        found = found or [check for check in every if name is not None and name in check.name]
        if not found:
            raise ValueError(
                f"no family is {name!r}, and no check has it in its name; families are {', '.join(families)}"
            )
    for family in families:
        if of_family := [check for check in found if check.family == family]:
            out.print(f"[bold]{escape(family)}[/]")
            for check in of_family:
                _show_check(out, check)
    number = counted(len(found), "check")
    out.print(f"\n{number}; run one with: ddpcheck check ADAPTER --check NAME", soft_wrap=True)


def _show_check(out: Console, check: Check) -> None:
    basic = " (level basic)" * (check.level == Level.BASIC)
    out.print(f"  [cyan]{escape(check.name)}[/]{basic}")
    out.print(f"      {escape(check.sentence)}", soft_wrap=True)
    if check.needs:
        out.print(f"      needs: {escape(', '.join(map(str, check.needs)))}", style="dim", soft_wrap=True)


@command.command()
@click.argument("ids", nargs=-1)
def causes(ids: tuple[str, ...]) -> None:
    """The causes that a failure can name, by id: meaning, evidence, and next steps.

    IDS select causes by a part of their id. Default: all.
    """
    found = [kind for kind in KINDS.values() if not ids or any(part in kind.id for part in ids)]
    if not found:
        raise click.UsageError(f"no cause has {', '.join(ids)} in its id; without IDS all causes are listed")
    out = console()
    for kind in sorted(found, key=lambda kind: kind.id):
        _show_cause(out, kind)
    out.print(f"\n{counted(len(found), 'cause')}")


def _show_cause(out: Console, kind: Kind) -> None:
    out.print(f"[cyan]{kind.id}[/]")
    for text in map(as_listed, (kind.headline, kind.because, f"Look at: {kind.look}" * bool(kind.look))):
        if text:
            out.print(f"    {escape(text)}", soft_wrap=True)


@command.command()
@click.argument("adapter", required=False)
@click.option("--markdown", is_flag=True, help="One markdown table for each facet, as in docs/contract.md.")
def capabilities(adapter: str | None, markdown: bool) -> None:
    """The promises that an implementation can make, with their defaults; or those that ADAPTER makes."""
    with usage_errors():
        promised = resolve(adapter, IMPORT_SECONDS)[0].capabilities if adapter else Capabilities()
    column = f"of {adapter}" if adapter else "default"
    if markdown:
        click.echo("\n\n".join(_group_in_markdown(group, promised, column) for group in GROUPS))
        return
    table = _table("promise", column, "meaning")
    for group, kind in GROUPS.items():
        offered = getattr(promised, group).offered
        table.add_row(f"[bold]{group}[/]", "" if offered else "not offered", escape(docstring(kind)))
        for name, value, sentence in _promises(group, promised):
            table.add_row(f"  {name}", escape(value), escape(sentence))
    console().print(table)


def _group_in_markdown(group: str, promised: Capabilities, column: str) -> str:
    rows = [f"| `{name}` | {value} | {sentence} |" for name, value, sentence in _promises(group, promised)]
    table = [f"| promise | {column} | meaning |", "|---|---|---|", *rows] if rows else []
    return "\n".join([f"### {group}", "", docstring(GROUPS[group]), *[""] * bool(table), *table])


def _promises(group: str, promised: Capabilities) -> list[tuple[str, str, str]]:
    """Name, value and sentence of each promise of a group. The members of a set follow the set, as `set: member`."""
    return [
        (f"{each.name}: {name}" if name != each.name else name, _value(name, promised.value_of(name)), SENTENCES[name])
        for each in promises_of(GROUPS[group])
        for name in (each.name, *each.metadata["members"])
    ]


def _value(name: str, value: object) -> str:
    if value is None:
        return "any" if name == "world_sizes" else "no"
    if isinstance(value, IntEnum):
        return value.name.lower().replace("_", " ")
    if isinstance(value, frozenset):
        return ", ".join(map(str, sorted(value))) or "none"
    return {True: "yes", False: "no"}.get(value, str(value))  # type: ignore[call-overload, no-any-return]


@command.command()
def launchers() -> None:
    """The launchers, and whether each works here."""
    table = _table("launcher", "here", "description")
    for name in sorted(installed_launchers()):
        try:
            reason, text = launcher_named(name).unavailable(), description(name)
        except ValueError as error:
            reason, text = str(error), ""
        table.add_row(name, "no" if reason else "yes", escape(f"{text} ({reason})".strip() if reason else text))
    attached = "Ranks that you start yourself, on any hosts: ddpcheck check ADAPTER --attach HOST:PORT"
    table.add_row("attached", "yes", attached)
    console().print(table)


@command.command()
def profiles() -> None:
    """How many Jobs each check draws (--profile), and which checks run (--level)."""
    table = _table("profile", "Jobs per check", "world sizes", "use")
    for profile in PROFILES.values():
        table.add_row(profile.name, str(profile.effort), ", ".join(map(str, profile.world_sizes)), profile.sentence)
    out = console()
    out.print(table)
    levels = _table("level", "checks that run")
    for name, level in LEVELS.items():
        levels.add_row(name, level.sentence)
    out.print()
    out.print(levels)


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names[:-1]:
        table.add_column(escape(name), overflow="fold")
    table.add_column(names[-1], ratio=1)
    return table
