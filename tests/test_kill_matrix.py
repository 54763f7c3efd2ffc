"""The page of the kill matrix: several runs give one page, and the last outcome of a fault counts."""

from __future__ import annotations

from typing import Any

from ddpcheck_reports.kill_matrix import markdown, merged


def kill(
    name: str, family: str, cause: str, *, missed: tuple[str, ...] = (), seen_in: tuple[str, ...] = ()
) -> dict[str, Any]:
    first = {
        "check": "check_a",
        "diagnosis": {"headline": "got 2", "causes": [{"id": cause, "headline": f"The {cause} part."}]},
    }
    return {
        "name": name,
        "family": family,
        "world_size": 2,
        "seconds": 1.5,
        "first": first,
        "missed": list(missed),
        "seen_in": list(seen_in),
    }


def record(*kills: dict[str, Any]) -> dict[str, Any]:
    here = {"python": "3.11.7", "cores": 2}
    return {"kills": list(kills), "profile": "default", "deadline": 3.0, "environment": here}


def test_later_parts_replace_earlier_results() -> None:
    first = record(kill("b", "samplers.epochs", "early", missed=("check_b",)), kill("a", "replicas.buckets", "tail"))
    page = markdown(merged([first, record(kill("b", "samplers.epochs", "late"))]))
    assert "**2 of 2** adapters" in page
    assert "The late part. (`late`)" in page
    assert "early" not in page
    assert page.index("## replicas.buckets") < page.index("## samplers.epochs")
    assert "in 2 parts" in page


def test_single_run_is_not_a_part() -> None:
    page = markdown(record(kill("a", "replicas.buckets", "tail", missed=("check_b",))))
    assert "**0 of 1** adapters" in page
    assert "parts" not in page


def test_faults_seen_in_real_code_and_invented_ones_are_counted_apart() -> None:
    page = markdown(
        record(kill("a", "samplers.epochs", "early", seen_in=("pytorch/pytorch#1",)), kill("b", "x", "late"))
    )
    assert "1 of these faults were seen in real code; 1 were invented" in page
    assert "[pytorch/pytorch#1](https://github.com/pytorch/pytorch/issues/1)" in page
    assert "| invented |" in page
