"""Audits of whole scripts: tests/audit_scripts/train.py is right, and each of its faults is found with its cause."""

from __future__ import annotations

import json
import textwrap
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from audits import FORK_SERVERS, audit  # the marker above must come first

from ddpcheck.audit.audit_in_tests import Audited
from ddpcheck.audit.request import Request
from ddpcheck.cli import main
from ddpcheck.storage.results import Results

SCRIPTS = Path(__file__).parent / "audit_scripts"
TRAIN = str(SCRIPTS / "train.py")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(tmp_path: Path, text: str) -> str:
    file = tmp_path / "script.py"
    file.write_text(text, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("accumulate", ["1", "3"])
def test_a_right_script_is_right(accumulate: str) -> None:
    audited = audit(TRAIN, "--accumulate", accumulate)
    audited.holds()
    assert audited.page.startswith("YES")
    assert audited.status("gradients_equal_those_of_one_process") == "passed"
    assert all(not step.not_comparable and step.relative_off < 1e-6 for step in audited.evidence.compared)


def test_a_mean_of_means_of_batches_of_different_sizes_is_a_note() -> None:
    audited = audit(str(SCRIPTS.parent / "audit" / "scripts" / "right" / "mean_of_batch_means.py"), steps=0)
    audited.holds()
    assert "counts batches of 16, 6 samples alike" in audited.page
    ends = audited.evidence.real.of(0, "epoch_end")
    assert {end["trained"] for end in ends if end["means"]} == {True, False}, (
        "losses that are not read, and what is read"
    )


def test_a_script_that_imports_for_longer_than_the_deadline_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\n\ntime.sleep(6)\n", encoding="utf-8")
    script = write(tmp_path, f"import runpy\n\nimport slow\n\nrunpy.run_path({TRAIN!r}, run_name='__main__')\n")
    audited = audit(script, steps=0, deadline=4.0)
    assert audited.status("ranks_end_without_error") == "passed"


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("summed", "gradients-summed"),
        ("times_world", "gradients-scaled"),
        ("own_mean", "loss-normalised-per-rank"),
        ("clip_first", "clip-before-reduction"),
        ("same_draws", "same-random-draws-on-every-rank"),
        ("bypass", "forward-bypasses-wrapper"),
    ],
)
def test_faults_of_gradients(fault: str, cause: str) -> None:
    audited = audit(TRAIN, "--fault", fault)
    assert audited.causes[0] == cause, audited.page
    assert audited.page.startswith("NO")


def test_the_line_that_combines_samples_is_told_after_random_draws(tmp_path: Path) -> None:
    """A random result is that of the ranks in one process as well, so the noise is no first difference."""
    text = Path(TRAIN).read_text(encoding="utf-8")
    forward = "        return self.head(self.body(x))\n"
    combined = "        x = x + 0.1 * torch.randn_like(x)\n        x = x / x.square().mean().sqrt()  # combined\n"
    script = write(tmp_path, text.replace(forward, combined + forward))
    line = next(
        n for n, each in enumerate(Path(script).read_text(encoding="utf-8").splitlines(), 1) if "# combined" in each
    )
    audited = audit(script)
    assert audited.causes[0] == "loss-couples-samples", audited.page
    assert f"combined in script.py:{line};" in audited.page, audited.page


RECORD_ALONE = [
    ("world_is_one", "world-is-one"),
    ("different_initial_parameters", "different-initial-parameters"),
    ("not_synchronised", "parameter-not-synchronised"),
    ("unfrozen", "parameter-unfrozen-after-wrapping"),
    ("replaced", "optimizer-holds-replaced-parameters"),
    ("lr_differs", "learning-rate-differs"),
    ("set_epoch", "set-epoch-not-called"),
    ("all_zero", "gradients-all-zero"),
    ("samples_never_used", "samples-never-used"),
    ("different_numbers_of_batches", "different-numbers-of-batches"),
    ("no_sampler", "same-data-on-every-rank"),
    ("shards_overlap", "sampler-seed-differs"),
    ("rank_branch", "collective-in-rank-dependent-branch"),
    ("several_write", "checkpoint-written-by-several-ranks"),
    ("mean_without_counts", "metric-averaged-without-counts"),
    ("metric_of_one", "metric-of-one-rank"),
]
WINDOWS = [
    ("window_lost", "last-window-not-stepped", "4"),
    ("full_count", "last-window-divided-by-full-count", "4"),
    ("no_sync_everywhere", "last-micro-batch-not-synchronised", "3"),
    ("around_backward", "no-sync-around-backward-only", "3"),
    ("not_divided", "accumulation-not-divided", "3"),
]


@pytest.mark.parametrize(("fault", "cause", "accumulate"), [*((*pair, "1") for pair in RECORD_ALONE), *WINDOWS])
def test_faults_found_without_a_mirror_run(fault: str, cause: str, accumulate: str) -> None:
    audited = audit(TRAIN, "--fault", fault, "--accumulate", accumulate, steps=0, deadline=15)
    assert audited.causes[0] == cause, audited.page


def test_a_fault_that_one_process_has_too_is_told_so() -> None:
    page = audit(TRAIN, "--fault", "full_count", "--accumulate", "4", deadline=15).page
    assert "train.py goes wrong on one process, too (1 cause)" in page.partition("\n")[0], page


def test_the_page_names_the_line_and_the_next_step() -> None:
    page = audit(TRAIN, "--fault", "several_write", steps=0).page
    lines = Path(TRAIN).read_text(encoding="utf-8").splitlines()
    number = next(place for place, line in enumerate(lines, 1) if "torch.save(" in line)
    assert f"look at: train.py:{number}: save on rank 0 only" in page
    assert "not judged Gradients are those of one process" in page


DRAWN = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
accumulate = 4
assert accumulate % dist.get_world_size() == 0
accumulate //= dist.get_world_size()
torch.manual_seed(dist.get_rank())
table = torch.arange(400.0).reshape(100, 4).sin()
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def batch():
    return table[torch.randint(100, (6,))]


x = batch()
for step in range(6):
    for micro in range(accumulate):
        model.require_backward_grad_sync = micro == accumulate - 1
        loss = (model(x) ** 2).mean() / accumulate
        x = batch()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_batches_from_drawn_indices(tmp_path: Path) -> None:
    """Accumulation divided by the world size, and batches drawn before their use, as in nanoGPT."""
    audited = audit(write(tmp_path, DRAWN), steps=4)
    audited.holds()
    assert [step.not_comparable for step in audited.evidence.compared] == [""] * 4, audited.page
    assert "drawn indices" in audited.page


RAGGED = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
torch.manual_seed(0)
g = torch.Generator().manual_seed(3)
data = [torch.rand(int(torch.randint(2, 9, (), generator=g)), generator=g) + 0.1 for _ in range(32)]
sampler = DistributedSampler(data)
loader = DataLoader(data, 4, sampler=sampler, collate_fn=lambda items: pad_sequence(items, batch_first=True))
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    mask = (x != 0).float()
    count = mask.sum()
    dist.all_reduce(count)
    loss = ((model(x.unsqueeze(-1)).squeeze(-1) ** 2) * mask).sum() * dist.get_world_size() / count
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_ragged_batches_are_collated_anew(tmp_path: Path) -> None:
    audited = audit(write(tmp_path, RAGGED), steps=3)
    audited.holds()
    assert "collated again" in audited.page
    assert audited.status("gradients_equal_those_of_one_process") == "passed"


ON_GPU = """
import os
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
if hasattr(torch, "accelerator"):
    assert torch.accelerator.is_available() and torch.accelerator.device_count() >= 1
    assert torch.accelerator.current_accelerator().type == "cuda"
    torch.accelerator.set_device_index(local)
device = torch.device("cuda", local)
assert device.type == "cuda" and torch.zeros(1, device=device).device.type == "cpu"
assert isinstance(torch.Generator(device=device), torch.Generator)
dist.init_process_group("nccl")
torch.manual_seed(0)
torch.nn.DataParallel(nn.Linear(4, 1)).cuda()(torch.zeros(2, 4, device="cuda"))
data = TensorDataset(torch.rand(32, 4))
sampler = DistributedSampler(data)
loader = DataLoader(data, 4, sampler=sampler, pin_memory=True)
model = DistributedDataParallel(nn.Linear(4, 1).to(device), device_ids=[local])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    loss = (model(x.to(device, non_blocking=True)) ** 2).mean() + torch.zeros((), device="cuda")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
"""


def test_gpu_script_runs_without_a_gpu(tmp_path: Path) -> None:
    audit(write(tmp_path, ON_GPU), steps=2, no_gpu=True).holds()


def test_gpu_script_without_a_gpu_is_told_of_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    script = """
        import torch, torch.distributed as dist
        dist.init_process_group("nccl")
        torch.zeros(1, device="cuda")
    """
    audited = audit(write(tmp_path, textwrap.dedent(script)))
    assert not audited.causes
    assert audited.page.splitlines()[0].startswith("NOT JUDGED: ")
    assert "run it on the CPU with --no-gpu (" in audited.page.splitlines()[0]
    assert "batches came from: no source: the script failed before it trained anything" in audited.page
    assert "ddpcheck.audit.batch" not in audited.page


def test_script_that_exits_is_not_judged_and_its_output_is_shown(tmp_path: Path) -> None:
    audited = audit(write(tmp_path, 'print("needs two GPUs")\nimport torch'))
    assert not audited.causes
    assert "NOT JUDGED" in audited.page
    assert "needs two GPUs" in audited.page


MARKED = """
import torch, torch.distributed as dist
import ddpcheck.audit
from torch import nn
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
order = torch.randperm(96, generator=torch.Generator().manual_seed(5))
table = torch.arange(384.0).reshape(96, 4).cos()
for step in range(4):
    first = (step * dist.get_world_size() + dist.get_rank()) * 8
    x = ddpcheck.audit.batch(table[order[first : first + 8]])
    loss = (model(x) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_marked_batch(tmp_path: Path) -> None:
    audited = audit(write(tmp_path, MARKED), steps=3)
    audited.holds()
    assert audited.status("gradients_equal_those_of_one_process") == "passed"


def test_unrecognised_batches_are_reported_without_a_finding(tmp_path: Path) -> None:
    audited = audit(write(tmp_path, MARKED.replace("ddpcheck.audit.batch(", "(")), steps=2)
    assert not audited.causes, audited.page
    assert audited.status("gradients_equal_those_of_one_process") == "skipped"
    assert "ddpcheck.audit.batch()" in audited.page


def test_a_script_that_raises(tmp_path: Path) -> None:
    audited = audit(write(tmp_path, "import torch\n\nraise KeyError('no data')\n"), steps=2)
    assert audited.causes == ("script-raised",)
    assert "script.py:3" in audited.page
    assert audited.page.count("KeyError: 'no data'") == 1


def test_the_command(tmp_path: Path) -> None:
    """Each process starts an interpreter here."""
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "xml", "md")}
    words = ["audit", "--steps", "0", "--json", str(files["json"]), "--junit", str(files["xml"])]
    words += ["--markdown", str(files["md"]), TRAIN, "--fault", "set_epoch"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1, result.output
    assert result.output.startswith("NO")
    found = [v for v in Results.load(files["json"]).verdicts if v.diagnosis is not None]
    assert [v.diagnosis.cause.id for v in found if v.diagnosis and v.diagnosis.cause] == ["set-epoch-not-called"]
    assert "failure" in files["xml"].read_text(encoding="utf-8")
    page = files["md"].read_text(encoding="utf-8")
    assert "| broken |" in page
    assert f"Run again:\n\n```sh\nddpcheck audit --steps 0 {TRAIN} --fault set_epoch\n```" in page
    again = CliRunner().invoke(main, ["audit", "--judge", str(files["json"])])
    assert again.exit_code == 1
    assert again.output == result.output
    assert "laws; ddpcheck audit -v names them" in result.output
    whole = CliRunner().invoke(main, ["audit", "-v", "--judge", str(files["json"])])
    assert "✓ held       All ranks get as many batches." in whole.output


def test_evidence_round_trips_through_json(tmp_path: Path) -> None:
    audited = audit(TRAIN, "--fault", "own_mean")
    file = tmp_path / "evidence.json"
    audited.evidence.save(file)
    from ddpcheck.audit.evidence import Evidence
    from ddpcheck.audit.verdicts import verdicts_of

    assert verdicts_of(Evidence.load(file)) == list(audited.verdicts)


@pytest.mark.parametrize("words", [["audit"], ["audit", "nowhere.py"], ["audit", "--judge", "nowhere.json"]])
def test_usage(words: list[str]) -> None:
    assert CliRunner().invoke(main, words).exit_code == 2


@pytest.mark.parametrize("command", ["check", "train", "doctor"])
@pytest.mark.parametrize("reference", [TRAIN, f"{TRAIN}:main"])
def test_commands_that_are_given_a_script_point_to_the_audit(command: str, reference: str) -> None:
    result = CliRunner().invoke(main, [command, reference])
    assert result.exit_code in (1, 2)
    assert "ddpcheck audit" in result.output


RESUMED = """
import argparse, os
import numpy, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--resume", action="store_true")
parser.add_argument("--forget", action="store_true")
parser.add_argument("--noise", choices=["torch", "numpy"])
args = parser.parse_args()
dist.init_process_group("gloo")
torch.manual_seed(0)
numpy.random.seed(0)
data = TensorDataset(torch.rand(32, 4))
sampler = DistributedSampler(data)
loader = DataLoader(data, 4, sampler=sampler)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
first = 0
if args.resume:
    state = torch.load("state.pt")
    net.load_state_dict(state["net"])
    if not args.forget:
        optimizer.load_state_dict(state["optimizer"])
    first = state["epoch"] + 1
model = DistributedDataParallel(net)
for epoch in range(first, args.epochs):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        if args.noise:
            x = x + (torch.rand(1) if args.noise == "torch" else numpy.random.rand())
        loss = (model(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "state.pt")
    dist.barrier()
"""


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("", None),
        (" --forget", "the update differs: the optimizer's state was not restored"),
        (" --noise torch", "gradients differ: other random draws"),
        (" --noise numpy", "gradients differ: other random draws"),
    ],
)
def test_resuming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, what: str | None) -> None:
    monkeypatch.setattr("ddpcheck.cli.audit.Request", partial(Request, fork_servers=FORK_SERVERS))
    script = write(tmp_path, RESUMED)
    file = tmp_path / "out.json"
    resume = ["--resume-check", "--epochs 1" + more, "--epochs 2 --resume" + more]
    result = CliRunner().invoke(main, ["audit", "--steps", "0", "--json", str(file), *resume, script, *more.split()])
    assert result.exit_code == (0 if what is None else 1), result.output
    found = {v["check"]: v for v in json.loads(file.read_text(encoding="utf-8"))["verdicts"]}["resumed_runs_go_on"]
    assert found["status"] == ("passed" if what is None else "failed")
    assert what is None or what in str(found["diagnosis"]["causes"])


def test_a_run_that_resumes_without_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpcheck.cli.audit.Request", partial(Request, fork_servers=FORK_SERVERS))
    whole = '"--whole", dest="resume", action="store_false"'
    script = write(tmp_path, RESUMED.replace('"--resume", action="store_true"', whole))
    words = ["-v", "--steps", "0", "--resume-check", "--whole --epochs 1", "", script, "--whole"]
    result = CliRunner().invoke(main, ["audit", *words])
    assert result.exit_code == 0, result.output
    assert "✓ held       A resumed run goes on as the uninterrupted one does." in result.output


def test_the_fixture(ddp_audit: object) -> None:
    assert callable(ddp_audit)
    audited = ddp_audit(TRAIN, "--fault", "set_epoch", steps=0, fork_servers=FORK_SERVERS)
    assert isinstance(audited, Audited)
    with pytest.raises(AssertionError, match="set-epoch-not-called"):
        audited.holds()
    audited.holds(without=["epochs_have_orders_of_their_own"])
