"""Coverage-guided fuzzing of every reader of outside data (targets.py), with atheris.

pip install atheris python tests/fuzz/run.py failure --seconds 60 --corpus /tmp/corpus

An input that breaks a reader is kept in the folder tests/fuzz/corpus/TARGET, which pytest reads again.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

import click

if __package__ in (None, ""):  # run as a file
    sys.path.insert(0, str(Path(__file__).parents[1]))

KEPT = Path(__file__).with_name("corpus")
_ATHERIS_LIMITS = ("-max_len=65536", "-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1")


@click.command()
@click.argument("name")
@click.option("--seconds", type=int, default=60, show_default=True)
@click.option(
    "--corpus", type=click.Path(path_type=Path), help="A folder for inputs that reach new code. Default: none."
)
def command(name: str, seconds: int, corpus: Path | None) -> None:
    """Fuzz the target NAME until it breaks, or the time is over."""
    import atheris

    with atheris.instrument_imports(
        include=["ddpcheck", "ddpcheck_benchmarks", "ddpcheck_implementations", "ddpcheck_reports"]
    ):
        from fuzz.targets import TARGETS
    from fuzz.seeds import seeds

    target = TARGETS[name]

    def once(data: bytes) -> None:
        try:
            target(data)
        except BaseException:
            folder = KEPT / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)
            raise

    with tempfile.TemporaryDirectory() as temporary:
        folder = corpus / name if corpus else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(seeds()[name]):
            (folder / f"seed-{number}").write_bytes(data)
        atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", *_ATHERIS_LIMITS, str(folder)], once)
        atheris.Fuzz()


if __name__ == "__main__":
    command()
