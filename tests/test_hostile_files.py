"""Invalid files from outside: each is refused in a sentence that names the file."""

from __future__ import annotations

import copy
import io
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_report import RUN, collective, everything, write
from test_schemas import published

from ddpcheck.causes import ranks
from ddpcheck.cli import main
from ddpcheck.job import AllReduce, Backward, Barrier, DataSpec, Job, Step, TensorSpec, ZeroGrad
from ddpcheck.models.spec import mlp
from ddpcheck.storage.archives import read_arrays
from ddpcheck.storage.failing_jobs import Failure
from ddpcheck.storage.files import UnreadableFile
from ddpcheck.storage.results import Results
from ddpcheck.verdict import Diagnosis, Verdict
from ddpcheck_benchmarks.projection.measurements import load
from ddpcheck_reports.result_files import read
from ddpcheck_reports.web.page import page as web_page

T = TypeVar("T")
Change = tuple[tuple[Any, ...], Any]
"""The place of a part of JSON, and its new value."""
TRAINED = (ZeroGrad(), Backward(((0, 1), (2, 3))), Step(), AllReduce(TensorSpec((5,))))
JOB = Job(2, TRAINED, mlp((2, 3, 1), activation="tanh"), data=DataSpec(4, "real"))
SLOW_OR_SHARED = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(
        ([], {}, [[]], {"kind": "job"}, {"kind": "nosuch"}, "\x1b[31m", "$\\frac$", "<b>", "../../x", 1 << 40)
    ),
)
PLAIN = {
    "null": b"null",
    "empty": b"",
    "text": b'"x"',
    "list": b"[1]",
    "not UTF-8": bytes(range(256)),
    "nested": b"[" * 100_000,
    "nested twice": b'{"schema": ' * 50_000,
    "NaN": b'{"schema": NaN}',
    "infinite": b'{"schema": 1e999}',
    "cut off": b'{"schema": "ddpcheck.failure/1", ',
    "no fields": b'{"schema": "ddpcheck.failure/1"}',
    "no benchmarks": b'{"benchmarks": 3}',
    "bench without entries": b'{"ddpcheck": {"schema": "ddpcheck.bench/1"}}',
    "bench of nulls": b'{"ddpcheck": {"schema": "ddpcheck.bench/1"}, "benchmarks": [null]}',
}


def _part(plain: Any, place: Sequence[Any]) -> Any:
    for key in place:
        plain = plain[key]
    return plain


def _places(plain: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    parts = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    for key, part in parts:
        yield (*above, key)
        yield from _places(part, (*above, key))


def _saved(save: Callable[[Path], None]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder, "saved"))
        return json.loads(Path(folder, "saved").read_text())


def replaced_part(plain: Any) -> st.SearchStrategy[Change]:
    """The place of any part of JSON but its schema, and another value for it."""
    return st.tuples(st.sampled_from([place for place in _places(plain) if place != ("schema",)]), HOSTILE)


CAUSE = ranks.LEFT_COLLECTIVE_EARLY(ranks=(1,))
FAILURE = _saved(Failure("numpy_sockets", 2, "check_a", JOB, causes=(CAUSE,)).save)
FAILED = Verdict("mine", 2, "check_a", "sums", "failed", 0.5, 8, "", Diagnosis("3, not 4", (CAUSE,), "x", ("y",)))
RESULTS = _saved(Results((FAILED,)).save)
BENCHMARKS = {"ddpcheck": RUN, "benchmarks": everything(), "commit_info": {}, "datetime": ""}


@pytest.mark.parametrize("content", PLAIN.values(), ids=PLAIN.keys())
@pytest.mark.parametrize(
    "command", [["replay"], ["report"], ["project", "--from"], ["gate", "--replay"], ["audit", "--judge"]]
)
def test_a_file_of_something_else_is_refused_in_a_sentence(command: list[str], content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(content)
    shown = CliRunner().invoke(main, [*command, str(path)])
    assert shown.exit_code == 2, (shown.output, shown.exception)
    assert "Error: " in shown.output
    assert "hostile" in shown.output


@pytest.mark.skipif(sys.platform != "linux", reason="needs FIFOs and /dev/zero")
@pytest.mark.parametrize("reading", [Failure.load, Results.load, lambda path: load([path]), lambda path: read([path])])
def test_what_is_no_regular_file_is_not_waited_for(reading: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        with pytest.raises(UnreadableFile, match=r"cannot be read: (it is not a regular file|Is a directory)"):
            reading(path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_refused(number: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    Results((Verdict("mine", 2, "check_a", "sums", "passed", 0.5, 8),)).save(path)
    path.write_text(path.read_text().replace('"seconds": 0.5', f'"seconds": {number}'))
    with pytest.raises(UnreadableFile, match=f"it holds {number}"):
        Results.load(path)


@settings(suppress_health_check=SLOW_OR_SHARED)
@given(replaced_part(FAILURE))
@example((("world_size",), 3))  # the Job has 2 ranks
@example((("job", "operations", 3, "tensor", "shape", 0), "x"))
@example((("job", "data", "samples"), 3.5))
@example((("causes", 0, "certainty"), None))
def test_a_changed_failure_is_a_job_that_fits_or_is_refused(tmp_path: Path, change: Change) -> None:
    path = tmp_path / "failure.json"
    written = _write_changed(path, FAILURE, change)
    found = _loaded(Failure.load, path)
    if found is None:
        return
    assert found.world_size == written["world_size"]
    assert Job.from_plain(json.loads(json.dumps(found.job.to_plain()))) == found.job
    found.save(path)
    assert _misfits(path, "failure-1") == []


def test_every_part_of_a_job_has_its_type_or_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "failure.json"
    Failure("numpy_sockets", 2, "check_a", JOB).save(path)
    right = json.loads(path.read_text())
    accepted = []
    for place in _places(right):
        if isinstance(_part(right, place), dict | list):
            continue
        changed = copy.deepcopy(right)
        _part(changed, place[:-1])[place[-1]] = [["x"]]  # the type of no part
        path.write_text(json.dumps(changed))
        if _loaded(Failure.load, path) is not None:
            accepted.append(place)
    assert accepted == []


@settings(suppress_health_check=SLOW_OR_SHARED)
@given(replaced_part(RESULTS))
@example((("settings",), []))
@example((("environment", "packages"), None))
@example((("verdicts", 0, "status"), 3))
@example((("verdicts", 0, "seconds"), "x"))
@example((("verdicts", 0, "diagnosis", "details", 0), 3))
@example((("verdicts", 0, "diagnosis", "causes", 0, "parameters"), {}))
def test_changed_results_give_a_page_or_are_refused(tmp_path: Path, change: Change) -> None:
    path = tmp_path / "results.json"
    _write_changed(path, RESULTS, change)
    found = _loaded(Results.load, path)
    if found is None:
        return
    web_page(found)
    found.save(path)
    assert _misfits(path, "results-2") == []


@settings(suppress_health_check=SLOW_OR_SHARED, max_examples=6)
@given(replaced_part(BENCHMARKS))
@example((("ddpcheck", "load", "loadavg_before"), []))
@example((("ddpcheck", "environment", "packages"), 3))
@example((("benchmarks", 0, "name"), None))
@example((("benchmarks", 0, "extra_info", "kind"), "nosuch"))
@example((("benchmarks", 0, "extra_info", "world_size"), "x"))
@example((("benchmarks", 0, "stats", "data"), []))
def test_a_changed_benchmark_gives_a_report_or_is_refused(tmp_path: Path, change: Change) -> None:
    pytest.importorskip("matplotlib", reason="pip install ddpcheck[report]")
    path = tmp_path / "bench.json"
    _write_changed(path, BENCHMARKS, change)
    shown = CliRunner().invoke(main, ["report", str(path), "-o", str(tmp_path / "report.md")])
    assert shown.exit_code == 0 or (shown.exit_code == 2 and str(path) in shown.output), (shown.output, shown.exception)


@pytest.mark.parametrize("name", ['"]; import os; os.abort(); x["', "../../x", "a\nb", "x" * 300])
def test_a_name_is_no_code_and_no_path(tmp_path: Path, name: str) -> None:
    path = tmp_path / "failure.json"
    Failure("numpy_sockets", 2, "check_a", JOB).save(path)
    path.write_text(path.read_text().replace('"fc1"', json.dumps(name)))
    with pytest.raises(UnreadableFile, match="should be a name"):
        Failure.load(path)


def test_code_that_a_file_names_is_not_run(tmp_path: Path) -> None:
    """Without --adapter, and without a terminal for the question."""
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    path = tmp_path / "failure.json"
    Failure(f"{tmp_path / 'theirs.py'}:adapter", 2, "check_all_reduce_sums_exactly", JOB).save(path)
    shown = CliRunner().invoke(main, ["replay", str(path)])
    assert shown.exit_code == 2, shown.output
    assert "names code to run" in " ".join(shown.output.replace("│", " ").split())
    assert not (tmp_path / "ran").exists()


def test_an_unknown_check_is_refused_with_the_right_name(tmp_path: Path) -> None:
    path = tmp_path / "failure.json"
    Failure("numpy_sockets", 2, "check_all_reduce_sums_exact", JOB).save(path)
    shown = CliRunner().invoke(main, ["replay", str(path)])
    assert shown.exit_code == 2, shown.output
    assert "did you mean check_all_reduce_sums_exactly" in " ".join(shown.output.split())


@pytest.mark.parametrize("size", ["-1", "0", "1e999", "2.5", '"2"', "100000", "null"])
def test_a_world_size_out_of_range_is_refused(size: str, tmp_path: Path) -> None:
    path = tmp_path / "failure.json"
    Failure("numpy_sockets", 2, "check_a", Job(2, (Barrier(),))).save(path)  # its operation fits every world size
    path.write_text(path.read_text().replace('"world_size": 2', f'"world_size": {size}'))
    with pytest.raises(UnreadableFile, match=r"failure\.json"):
        Failure.load(path)


def test_a_world_size_that_is_not_the_jobs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "failure.json"
    Failure("numpy_sockets", 2, "check_a", Job(2, (Barrier(),))).save(path)
    path.write_text(path.read_text().replace('"world_size": 2', '"world_size": 3', 1))
    with pytest.raises(UnreadableFile, match="world_size is 3, but its Job has 2 ranks"):
        Failure.load(path)


def test_an_array_that_claims_terabytes_is_refused(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 42,)})
    with zipfile.ZipFile(tmp_path / "times.npz", "w") as archive:
        archive.writestr("begin.npy", header.getvalue())
    with pytest.raises(UnreadableFile, match=r"times\.npz cannot be read"):
        read_arrays(tmp_path / "times.npz")


@pytest.mark.parametrize("reading", [lambda path: load([path]), lambda path: read([path])], ids=["project", "report"])
@pytest.mark.parametrize("seconds", [-1e-3, 0.0, "1e-3", None, [1e-3], pytest.param(10**400, id="huge")])
def test_times_that_nobody_measured_are_refused(reading: Any, seconds: Any, tmp_path: Path) -> None:
    entry = collective("a", 2, 4, 1e-3)
    entry["stats"]["data"][1] = seconds
    with pytest.raises(UnreadableFile, match=r"x\.json"):
        reading(write(tmp_path, [entry]))


@pytest.mark.parametrize("name", [["a"], 3, None, {}])
def test_a_name_that_is_no_text_is_refused(name: Any, tmp_path: Path) -> None:
    entry = collective("a", 2, 4, 1e-3)
    entry["extra_info"]["adapter"] = name
    with pytest.raises(UnreadableFile, match=r"x\.json"):
        read([write(tmp_path, [entry])])


def test_a_name_is_no_formula_of_a_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install ddpcheck[report]")
    path = write(tmp_path, [collective("$\\frac$", 2, size, 1e-3) for size in (4, 8)])
    shown = CliRunner().invoke(main, ["report", str(path), "-o", str(tmp_path / "report.md")])
    assert shown.exit_code == 0, (shown.output, shown.exception)


def test_too_many_operations_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "failure.json"
    Failure("numpy_sockets", 2, "check_a", Job(2, (AllReduce(TensorSpec((1,))),) * 10_001)).save(path)
    with pytest.raises(UnreadableFile, match="at most 10,000"):
        Failure.load(path)


def _loaded(load: Callable[[Path], T], path: Path) -> T | None:
    """The file's content; None if it is refused by UnreadableFile."""
    try:
        return load(path)
    except UnreadableFile:
        return None


def _misfits(path: Path, name: str) -> list[str]:
    """The differences of a file from a published schema, in which true counts as a number, as in Python."""
    jsonschema = pytest.importorskip("jsonschema")
    plain = jsonschema.Draft202012Validator
    types = {
        "integer": lambda _, value: isinstance(value, int),
        "number": lambda _, value: isinstance(value, int | float),
    }
    kind = jsonschema.validators.extend(plain, type_checker=plain.TYPE_CHECKER.redefine_many(types))
    return [error.message for error in kind(published(name)).iter_errors(json.loads(path.read_text()))]


def _write_changed(path: Path, plain: Any, change: Change) -> Any:
    """Write JSON with one part replaced, and return it."""
    (*above, last), value = change
    changed = copy.deepcopy(plain)
    _part(changed, above)[last] = value
    path.write_text(json.dumps(changed))
    return changed
