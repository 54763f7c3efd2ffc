"""Actions and hooks use existing options of the commands, and their scripts work as described."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from ddpcheck.cli import main

ROOT = Path(__file__).parents[1]
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))


def script_of(action: Path) -> str:
    """The lines of the action's `run: |`."""
    lines = action.read_text(encoding="utf-8").partition("run: |\n")[2].splitlines()
    found = [line[8:] for line in lines[: next(i for i, line in enumerate(lines) if not line.startswith(" " * 8))]]
    return "\n".join(found)


def inputs_of(action: Path) -> dict[str, str]:
    """The default of each input."""
    text = action.read_text(encoding="utf-8").partition("inputs:\n")[2].partition("\nruns:")[0]
    found = re.findall(r"^  ([\w-]+):\n    description: .*\n    (?:default: (.*)|required: true)$", text, re.MULTILINE)
    return {name: default.strip('"') for name, default in found}


def options_of(command: str) -> set[str]:
    found = main.get_command(click.Context(main), command)
    assert found is not None
    return {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.parent.name)
def test_actions_use_options_that_are_there(action: Path) -> None:
    script = script_of(action)
    command = action.parent.name.removeprefix("ddpcheck-")
    named = set(
        re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join(line for line in script.splitlines() if "words" in line))
    )
    assert named <= options_of(command), named
    assert "${{" not in script  # no text of a pull request may become a part of the script
    assert set(re.findall(r"inputs\.([\w-]+)", action.read_text(encoding="utf-8"))) == set(inputs_of(action))


def ran(command: str, folder: Path, given: dict[str, str], status: int = 0) -> str:
    """The output of an action's script, with a `ddpcheck` that prints its arguments, writes the file that --markdown
    names, and ends with this status.
    """
    stand_in = (
        f"#!{sys.executable}\nimport sys, pathlib\nwords = sys.argv[1:]\n"
        "print(*words, sep='|')\n"
        "if '--markdown' in words: pathlib.Path(words[words.index('--markdown') + 1]).write_text('# all')\n"
        f"sys.exit({status} if words[0] == {command!r} else 0)\n"
    )
    program = folder / "ddpcheck"
    program.write_text(stand_in)
    program.chmod(0o755)
    environment = {
        **os.environ,
        **given,
        "FOLDER": "kept",
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "PATH": f"{folder}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        [
            "bash",
            "-eo",
            "pipefail",
            "-c",
            script_of(ROOT / ".github" / "actions" / f"ddpcheck-{command}" / "action.yml"),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == status, done.stderr
    assert not (folder / "pwned").exists()
    return done.stdout


CHECKED = {
    "ADAPTER": "$(touch pwned)", "WORLD_SIZES": "1,2", "PROFILE": "quick", "SEED": "", "CHECKS": "a b", "LEVEL": "full",
    "DEADLINE": "10", "CACHE": "", "ARTIFACT": "$(touch pwned)", "GITHUB_RUN_ID": "12", "GITHUB_REPOSITORY": "me/mine",
}  # fmt: skip


@pytest.mark.parametrize("status", [0, 1])
def test_the_check_action_writes_a_summary_and_keeps_the_status(tmp_path: Path, status: int) -> None:
    output = ran("check", tmp_path, CHECKED, status)
    assert "check|$(touch pwned)|--world-size|1,2|" in output
    assert "|--check|a|--check|b" in output
    fetched = "gh run download 12 --repo me/mine --name \\$\\(touch\\ pwned\\) --dir kept\n"
    told, _, page = (tmp_path / "summary").read_text().rpartition("```\n\n")
    assert page == "# all"
    assert told.endswith(fetched) if status else not told


def test_the_check_action_passes_its_inputs_on(tmp_path: Path) -> None:
    """An empty seed or folder is no option."""
    plain = ran("check", tmp_path, CHECKED)
    assert "|--level|full|--deadline|10|" in plain
    assert not {"--seed", "--cache"} & set(plain.split("|"))
    given = {"SEED": "7", "LEVEL": "basic", "DEADLINE": "30", "CACHE": "$(touch pwned)"}
    output = ran("check", tmp_path, CHECKED | given)
    assert "|--level|basic|--deadline|30|" in output
    assert "|--seed|7|--cache|$(touch pwned)|--check|a" in output


def test_inputs_of_the_check_action_have_the_defaults_of_the_command() -> None:
    given = inputs_of(ROOT / ".github" / "actions" / "ddpcheck-check" / "action.yml")
    found = main.get_command(click.Context(main), "check")
    assert found is not None
    defaults = {option.lstrip("-"): each.default for each in found.params for option in each.opts}
    assert given["level"] == defaults["level"]
    assert float(given["deadline"]) == defaults["deadline"]
    assert given["cache"] == given["seed"] == ""


AUDITED = {
    "SCRIPT": "train.py",
    "ARGUMENTS": "--epochs 2",
    "RANKS": "2",
    "STEPS": "6",
    "NO_GPU": "true",
    "STRICT": "false",
}


@pytest.mark.parametrize("status", [0, 1, 2])
def test_the_audit_action_writes_a_summary_and_keeps_the_status(tmp_path: Path, status: int) -> None:
    output = ran("audit", tmp_path, {**AUDITED, "INTERRUPTED": "", "RESUMED": ""}, status)
    assert output.startswith("audit|--ranks|2|--steps|6|--failures|kept/failures|")
    assert "|--no-gpu|--|train.py|--epochs|2\n" in output
    strict = ran("audit", tmp_path, {**AUDITED, "INTERRUPTED": "", "RESUMED": "", "STRICT": "true"}, status)
    assert "|--no-gpu|--strict|--|train.py|" in strict
    assert (tmp_path / "summary").read_text() == "# all" * 2


@pytest.mark.parametrize(
    ("interrupted", "resumed"), [("--epochs 1", "--epochs 2 --resume"), ("$(touch pwned)", ""), ("", "--resume")]
)
def test_the_audit_action_checks_that_resuming_does_not_change_the_run(
    tmp_path: Path, interrupted: str, resumed: str
) -> None:
    output = ran("audit", tmp_path, {**AUDITED, "INTERRUPTED": interrupted, "RESUMED": resumed})
    assert f"|--no-gpu|--resume-check|{interrupted}|{resumed}|--|train.py|--epochs|2\n" in output


@pytest.mark.parametrize("page", ["how-to/gate-a-ci.md", "gate.md"])
def test_a_page_has_a_whole_workflow_whose_inputs_are_there(page: str) -> None:
    blocks = re.findall(
        r"^```yaml\n(.*?)^```$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert any(all(f"{key}:" in block for key in ("\non", "\njobs", "runs-on")) for block in blocks)
    used = [
        (name, key)
        for block in blocks
        for name, given in re.findall(r"uses: \./\.github/actions/([\w-]+)\n +with:\n((?: +[\w-]+: .*\n)+)", block)
        for key in re.findall(r"^ +([\w-]+):", given, re.MULTILINE)
    ]
    assert used
    for name, key in used:
        assert key in inputs_of(ROOT / ".github" / "actions" / name / "action.yml"), (name, key)


def test_hooks_run_commands_that_are_there() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    entries = re.findall(r"^  entry: ddpcheck (\w+)(.*)$", text, re.MULTILINE)
    assert [command for command, _ in entries] == ["check", "audit"]
    for command, rest in entries:
        assert set(re.findall(r"--[a-z-]+", rest)) <= options_of(command)


def test_forms_for_verdicts_and_crashes_ask_for_the_replay_file() -> None:
    for name in ("wrong-verdict", "crash-or-hang"):
        text = (ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text(encoding="utf-8")
        assert "replay file" in text
        assert "ddpcheck-failures/" in text


def test_the_citation_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
