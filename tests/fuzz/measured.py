"""A small file of bench: a run, and one all-reduce."""

from __future__ import annotations

RUN = {
    "schema": "ddpcheck.bench/1",
    "environment": {
        "python": "3.11.7",
        "platform": "Linux",
        "processor": "x86_64",
        "cores": 2,
        "packages": {"numpy": "2.4.6"},
        "cpu": "A processor",
        "memory_gib": 8.0,
        "governor": "unknown",
        "fingerprint": "abcdef01",
    },
    "settings": {"command": "ddpcheck bench a"},
    "load": {
        "seconds": 61.0,
        "loadavg_before": [0.1, 0.2, 0.3],
        "loadavg_after": [1.0, 0.9, 0.5],
        "steal_seconds": 0.5,
        "waited_seconds": None,
    },
    "problems": [],
    "skipped": [],
    "consistency": [],
}
ALL_REDUCE = {
    "name": "all_reduce[a-p2-4096B-float32]",
    "extra_info": {
        **{
            "kind": "collective",
            "adapter": "a",
            "collective": "all_reduce",
            "world_size": 2,
            "bytes": 4096,
            "count": 1024,
        },
        **{"dtype": "float32", "redop": "sum", "in_place": False, "algbw": 0.4, "busbw": 0.4, "wrong": 0},
        **{"p25": 1e-3, "p95": 4e-3, "worst": 9e-3, "cv": 0.1, "spikes": 1, "iterations": 10, "samples": 30},
        **{
            "global_seconds": 1e-3,
            "cores": 2,
            "ranks": [{"median": 1e-3, "slowest": 0.1}, {"median": 1e-3, "slowest": 0.9}],
        },
    },
    "stats": {"data": [1e-3, 1.1e-3, 1.2e-3]},
}
