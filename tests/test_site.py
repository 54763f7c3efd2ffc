"""The site: generated pages are complete, and links of the repository become links of the site."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from test_catalogue import BY_TESTS

from ddpcheck.causes import KINDS, Kind, machine
from ddpcheck.cli import COMMANDS
from ddpcheck.running.plan import installed_checks

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))

import hooks  # noqa: E402  # in the folder of the pages, where mkdocs finds it
import pages  # noqa: E402

NAVIGATION = re.findall(
    r"^ +- (?:.*: )?([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
)


def test_every_command_has_its_options() -> None:
    page = pages.command_line()
    assert [name for name in COMMANDS if f"\n## ddpcheck {name}\n" not in page] == []
    assert "| `-w, --world-size TEXT` | World sizes, such as 1,2,4 or 1-4. Default: those of the profile. |" in page
    assert "\n### ddpcheck list causes\n" in page


def test_every_check_has_its_law_source_and_a_fault() -> None:
    page = pages.checks()
    for check in installed_checks():
        section = page.partition(f"### `{check.name}` {{ #{check.name} }}")[2].partition("\n###")[0]
        assert re.search(r"- source: `ddpcheck\w*/[\w/]+\.py`", section), check.name
        assert "- needs: " in section
    assert page.count("- catches, for example: ") > 150  # without torch and MPI some faults cannot run


def test_every_cause_has_its_words_and_nearly_all_a_fault() -> None:
    page = pages.catalogue_of_causes()
    assert [id for id in KINDS if f"### `{id}` {{ #{id} }}" not in page] == []
    of_machine = {kind.id for kind in vars(machine).values() if isinstance(kind, Kind)}
    unshown = {each.partition("`")[0] for each in page.split("### `")[1:] if "\n- shown by: " not in each}
    assert unshown == of_machine | set(BY_TESTS)


def test_options_of_pytest_are_there() -> None:
    page = pages.pytest_plugin_page()
    assert "| `--ddp-profile NAME` | default | quick, default or thorough |" in page
    assert "| `ddp_audit` | Audits a training script" in page


def test_every_page_is_in_the_navigation_and_every_entry_has_a_page() -> None:
    written = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    reports = {f"reports/{path.name}" for path in (ROOT / "reports").glob("*.md") if not path.stem.endswith("-summary")}
    assert sorted(NAVIGATION) == sorted(written | reports | set(pages.PAGES) | set(hooks.BESIDE))


@pytest.mark.parametrize(
    ("source", "link", "made"),
    [
        ("checks.md", "[kills](../reports/kill-matrix.md)", "[kills](reports/kill-matrix.md)"),
        ("tutorial/ring.md", "[see](../../reports/scaling.md#noise)", "[see](../reports/scaling.md#noise)"),
        ("reports/gate.md", "[gate](../docs/gate.md)", "[gate](../gate.md)"),
        ("libraries.md", "[one](adapters/ray_train.py)", "[one](adapters/index.md#ray-train)"),
        ("gate.md", "[action](../.github/actions/ddpcheck-gate/action.yml)", "action"),
        ("checks.md", "[lost](nowhere.md)", "[lost](nowhere.md)"),
        ("checks.md", "[out](https://example.org/a)", "[out](https://example.org/a)"),
        ("checks.md", "[below](#below)", "[below](#below)"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(source: str, link: str, made: str) -> None:
    held = {"checks.md", "gate.md", "reports/kill-matrix.md", "reports/scaling.md", "adapters/index.md"}
    assert hooks.with_site_links(link, source, held) == made


def test_alerts_become_admonitions_and_code_stays() -> None:
    page = "> [!NOTE]\n> one\n> two\n\n```sh\n> [!NOTE]\n```\n"
    made = hooks.outside_fences(page, hooks.with_admonitions)
    assert made == "!!! note\n\n    one\n    two\n\n```sh\n> [!NOTE]\n```\n"


def test_code_has_the_name_of_its_file() -> None:
    page = "Text\n\n<!-- file: code/ring.py -->\n\n```python\nx = 1\n```\n"
    assert hooks.with_file_names(page) == 'Text\n\n```python title="code/ring.py"\nx = 1\n```\n'


def test_every_extra_is_in_the_table() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    table = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(extras)
