"""Which condition of a script decides that some ranks make a call and others do not."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from audit_evidence import Event, backward, call, evidence, step

from ddpcheck.audit.conditions import Source, sources_from_plain, sources_of
from ddpcheck.audit.evidence import Evidence
from ddpcheck.audit.laws import world
from ddpcheck.audit.laws.deciding_conditions import deciding_condition
from ddpcheck.audit.laws.parting import parting

SCRIPT = """\
def skips(model, loader, optimizer):
    for x, y in loader:
        loss = model(x)
        if bad(loss):
            continue
        if verbose:
            print(loss)
        loss.backward()
        optimizer.step()

def reaches(loss, target):
    while loss > target:
        loss.backward()
    reduce(loss)

def tries(model, x):
    try:
        return model(x)
    except ValueError:
        return None

def logs(rank, loss):
    if rank == 0:
        reduce_and_print(loss)

def until(model, loader):
    for x in loader:
        if late():
            break
        train(model, x)
    evaluate(model)

def main(stopping, loader, rank):
    for epoch in range(9):
        for x in loader:
            loss = step(x)
        if rank == 0:
            print(epoch)
        if stopping(loss):
            break
    barrier()
    for name in names:
        if len(name) > 9:
            continue
        logs(rank, loss)
        barrier()
"""


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Source]:
    (tmp_path / "t.py").write_text(SCRIPT, encoding="utf-8")
    return sources_of([{"line": "t.py:3", "callers": ["gone.py:4", ""]}], tmp_path)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(SCRIPT.splitlines(), 1) if line.strip() == text)


@pytest.mark.parametrize(
    ("before", "made", "deciding"),
    [
        (["loss = model(x)"], ["loss.backward()"], "if bad(loss)"),
        (["optimizer.step()"], ["loss = model(x)"], "for x, y in loader"),
        (["loss = step(x)"], ["barrier()"], "if stopping(loss)"),
        (["train(model, x)"], ["evaluate(model)"], "if late()"),
        (["barrier()"], ["logs(rank, loss)", "reduce_and_print(loss)"], "if rank == 0"),
        (["barrier()"], ["logs(rank, loss)", "reduce_and_print(loss)"], "if len(name) > 9"),
        ([], ["return model(x)"], ""),
    ],
)
def test_the_condition_on_the_way(
    sources: dict[str, Source], before: list[str], made: list[str], deciding: str
) -> None:
    found = deciding_condition(sources, *(tuple(f"t.py:{line_of(text)}" for text in way) for way in (before, made)))
    assert deciding in found if deciding else not found


def test_the_way_goes_round_a_loop(sources: dict[str, Source]) -> None:
    first = line_of("while loss > target:")
    assert (
        deciding_condition(sources, (f"t.py:{first + 1}",), (f"t.py:{first + 1}",))
        == f"t.py:{first} (while loss > target)"
    )


def test_sources_are_plain_data(sources: dict[str, Source]) -> None:
    assert sources_from_plain({name: asdict(source) for name, source in sources.items()}) == sources


def test_a_file_that_cannot_be_read_has_no_conditions(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("if (\n", encoding="utf-8")
    assert sources_of([{"line": "t.py:1"}, {"line": "gone.py:1"}], tmp_path) == {}


def seen(sources: dict[str, Source], *ranks: list[Event], hung: bool = False) -> Evidence:
    return replace(evidence(*ranks, hung=hung), sources=sources)


FORWARD: Event = {
    "kind": "forward", "wrapper": 0, "step": 0, "grad": True, "sync": True, "buffers": False, "line": "t.py:3", "callers": [],
}  # fmt: skip


def test_a_skipped_backward_names_its_condition(sources: dict[str, Source]) -> None:
    at = f"t.py:{line_of('loss.backward()')}"
    judged = world.ranks_call_the_same_collectives(
        seen(sources, [FORWARD, backward(line=at), FORWARD], [FORWARD, FORWARD, backward(line=at)])
    )
    assert judged.causes[0].id == "backward-skipped-on-some-ranks"
    assert judged.causes[0].get("condition") == f"t.py:{line_of('if bad(loss):')} (if bad(loss))"


def test_a_rank_that_stays_in_its_loop(sources: dict[str, Source]) -> None:
    inside, after = line_of("while loss > target:") + 1, line_of("while loss > target:") + 2
    forward, reduced = FORWARD | {"line": f"t.py:{inside}"}, call("all_reduce", f"t.py:{after}")
    going_on = [forward, backward(line=f"t.py:{inside}"), forward]
    ended = [*going_on[:2], reduced]
    judged = world.ranks_call_the_same_collectives(seen(sources, going_on, ended))
    assert judged.causes[0].id == "ranks-part"
    assert judged.causes[0].get("ranks") == (0,)
    assert "while loss > target" in judged.causes[0].headline


def test_ranks_that_go_the_same_way_do_not_part(sources: dict[str, Source]) -> None:
    same = [FORWARD, backward(line="t.py:8"), step(line="t.py:9")]
    assert parting(seen(sources, same, same)) is None
    assert parting(seen(sources, same, same[:2])) is None, "as far as it came"


def test_a_hang_after_ways_have_parted_has_no_cause_of_its_own(sources: dict[str, Source]) -> None:
    at = "t.py:8"
    ranks = [[FORWARD, backward(line=at), FORWARD], [FORWARD, FORWARD]]
    assert world.ranks_end_without_error(seen(sources, *ranks, hung=True)).status == "not judged"
    assert world.ranks_end_without_error(seen(sources, ranks[0], ranks[0], hung=True)).status == "broken"
