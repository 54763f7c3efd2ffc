"""Searches for false alarms on fresh ranks: in a whole run, objects made by the first call of a kind exist when later
checks begin.

    python tests/false_alarms/alone.py torch_ddp numpy_mpi --world-size 2

Runs every check by itself, each on its own ranks, at the effort of `ddpcheck check`.
"""

from __future__ import annotations

import argparse

from ddpcheck.launchers.fork_servers import ForkServers
from ddpcheck.running.check_runner import CheckRunner, Settings
from ddpcheck.running.plan import RANKS_START, installed_checks, plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapters", nargs="+")
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--seed", type=int, help="draw other Jobs in each run")
    options = parser.parse_args()
    settings = Settings(random_seed=options.seed)
    with ForkServers() as fork_servers:
        for name in options.adapters:
            ran = alarms = 0
            for item in plan(name, (options.world_size,), installed_checks()):
                if item.skip or item.check is RANKS_START:
                    continue
                with CheckRunner(
                    item.adapter, item.reference, item.world_size, settings, fork_servers=fork_servers
                ) as ranks:
                    verdict = ranks.verdict(item)
                ran += 1
                if not verdict.ok:
                    alarms += 1
                    words = verdict.diagnosis.text() if verdict.diagnosis else verdict.reason
                    print(
                        f"ALARM {name}, {item.world_size} ranks, {verdict.check} {verdict.status}: {words}", flush=True
                    )
            print(f"{name}: {ran} checks alone at {options.world_size} ranks, {alarms} alarms", flush=True)


if __name__ == "__main__":
    main()
