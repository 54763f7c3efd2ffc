"""`python -m ddpcheck_benchmarks.projection`, as `ddpcheck project`."""

from __future__ import annotations

from .command import command

if __name__ == "__main__":
    command(prog_name="python -m ddpcheck_benchmarks.projection")
