"""Valid inputs of each target, from which the fuzzer starts."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ddpcheck.audit.evidence import SCHEMA as EVIDENCE
from ddpcheck.job import AllReduce, Backward, DataSpec, Job, Step, TensorSpec, ZeroGrad
from ddpcheck.models.spec import mlp
from ddpcheck.ranks.authentication import ANSWER
from ddpcheck.storage.codec import encode
from ddpcheck.storage.failing_jobs import Failure
from ddpcheck.storage.results import Results
from ddpcheck.training import checkpoint
from ddpcheck.training.plan import TrainingPlan
from ddpcheck.verdict import Verdict
from ddpcheck_implementations.numpy_sockets.connections import wire_format
from ddpcheck_implementations.numpy_sockets.connections.waits import Wait, pack
from ddpcheck_implementations.numpy_sockets.rendezvous import protocol
from fuzz.measured import ALL_REDUCE, RUN

_OPERATIONS = (ZeroGrad(), Backward(((0, 1), (2, 3))), Step(), AllReduce(TensorSpec((5,))))
_JOB = Job(2, _OPERATIONS, mlp((2, 3, 1), activation="tanh"), data=DataSpec(4, "real"))


@cache
def seeds() -> dict[str, list[bytes]]:
    """The valid inputs, by the name of the target."""
    numbers = np.arange(4, dtype=np.float32)
    value = encode({"a": [1, None, numbers], "b": "text"})
    header = wire_format.pack("all_reduce", numbers, "sum", wire_format.group_code((0, 1)), 3)
    entries = protocol._ENTRY.pack(b"127.0.0.1", 1) * 3
    reply = protocol._REPLY.pack(protocol._MAGIC, 1, 16 + len(entries))
    bench = json.dumps({"ddpcheck": RUN, "benchmarks": [ALL_REDUCE], "commit_info": {}, "datetime": ""}).encode()
    run = {"events": [[]], "stacks": [""], "output": "", "hung": False, "seconds": 1.0}
    record = {
        "schema": EVIDENCE, "script": ["train.py"], "ranks": 2, "steps": 1, "far": 400, "real": run, "mirrors": {"one": run},
        "compared": [],
    }  # fmt: skip
    waits = pack([Wait(1, 1, header, (0,)), Wait(0, 1, header, (1,))])
    idx = {
        dimensions: b"\0\0\x08" + bytes([dimensions]) + struct.pack(f">{dimensions}I", *(2,) * dimensions)
        for dimensions in (1, 3)
    }
    return {
        "control_frames": [struct.pack("!Q", 3) + b"abc"],
        "control_values": [value],
        "knock": [ANSWER.pack(bytes(32), bytes(32), 2) + b"ab"],
        "message": [header + numbers.tobytes(), wire_format.pack_abort(0)],
        "datagram": [struct.pack("!BIQ", kind, 1, 1) + waits for kind in range(3)],
        "rendezvous": [bytes(protocol._CHALLENGE_BYTES) + reply + bytes(16) + entries],
        "failure": [_saved(Failure("numpy_sockets", 2, "check_a", _JOB).save)],
        "results": [_saved(Results((Verdict("mine", 2, "check_a", "sums", "passed", 0.5, 8),)).save)],
        "report": [bench],
        "archive": [_archive(**{"step[a]/0/begin": np.zeros((1, 2)), "step[a]/0/end": np.ones((1, 2))})],
        "projection": [bench],
        "audit_record": [json.dumps(record).encode()],
        "gate_record": [_archive(about=np.array('{"schema": "x"}'), a=numbers)],
        "checkpoint": [_saved(lambda path: checkpoint.save(path, checkpoint.Checkpoint(TrainingPlan(), 2, 1, {"w": numbers})))],
        "idx": [idx[1] + b"ab", gzip.compress(idx[3] + b"abcdefgh", mtime=0)],
        "options": [b"1,2,4-6", b"4KiB..1MiB", b"10GbE", b"0.5"],
    }  # fmt: skip


def _saved(save: Callable[[Path], object]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "saved")
        save(path)
        return path.read_bytes()


def _archive(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()
