"""The ranks' answers to one Job, with hang detection: each rank's results, or how it failed."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence

from ..job import Close, Job, Kill
from ..launchers.cpu_starvation import Snapshot, snapshot, starved
from ..launchers.launcher import Launched
from ..storage import codec
from ..trace import IMPORTING, RankTrace, rank_from_plain
from . import low_priority_poll
from .channel import ChannelClosed
from .rank_link import RankLink, asked

_CHECKS = 10
"""The number of progress checks within a deadline."""

_EXCUSED_SECONDS = 60.0
"""Seconds beyond a deadline without progress for imports at first use, or for want of a processor."""


def gather_reports(
    job: Job, links: Sequence[RankLink], launched: Launched, deadline: float, grace: float
) -> dict[int, RankTrace]:
    """Return one RankTrace for each rank: its results, its failure, or its stack if it hangs.

    A rank hangs if no rank enters an operation for `deadline` seconds, unless one imports a module or gets no processor; and
    `grace` seconds after another rank has failed. If the Job kills a rank and the others close, they have the whole
    deadline: close() may wait.
    """
    return _Gathering(job, links, launched, deadline, grace).run()


class _Gathering:
    def __init__(self, job: Job, links: Sequence[RankLink], launched: Launched, deadline: float, grace: float) -> None:
        self._job, self._links, self._launched = job, links, launched
        self._deadline, self._grace = deadline, grace
        self._answers: dict[int, RankTrace] = {}
        self._poller = select.poll()
        for link in links:
            frame = link.jobs.pop()
            if frame is not None:
                self._answers[link.rank] = _answer(link, frame)
            else:
                self._poller.register(link.jobs.fileno(), select.POLLIN)
        self._limit = time.monotonic() + deadline
        self._excused_until = self._limit + _EXCUSED_SECONDS
        killed = {each.rank for each in job.operations if isinstance(each, Kill)}
        self._may_die = killed if any(isinstance(each, Close) for each in job.operations) else set()
        self._failed = False
        for rank, answer in self._answers.items():
            self._note_failure(rank, answer)
        self._progress = self._pending_progress()
        self._snapshot: Snapshot | None = None  # taken only after a while without answers: most Jobs end sooner

    def run(self) -> dict[int, RankTrace]:
        by_file = {link.jobs.fileno(): link for link in self._links}
        while len(self._answers) < len(self._links):
            left = max(0.0, self._limit - time.monotonic())
            ready = low_priority_poll.poll(self._poller, min(left, self._deadline / _CHECKS) * 1000)
            if not ready and (stuck := self._check_progress(over=not left)):
                return self._answers | stuck
            for file, _ in ready:
                link = by_file[file]
                answer = _read(link, self._job, self._launched)
                if answer is not None:
                    self._answers[link.rank] = answer
                    self._poller.unregister(file)
                    self._note_failure(link.rank, answer)
        return self._answers

    def _pending(self) -> list[RankLink]:
        return [link for link in self._links if link.rank not in self._answers]

    def _queued(self) -> Snapshot:
        return snapshot(link.queued() for link in self._links)

    def _pending_progress(self) -> list[tuple[int, int] | None]:
        return [link.progress() for link in self._pending()]

    def _note_failure(self, rank: int, answer: RankTrace) -> None:
        """Shorten the time for the other ranks if this one has failed."""
        if answer.outcome != "done" and rank not in self._may_die and not self._failed:
            self._failed = True
            self._limit = min(self._limit, time.monotonic() + self._grace)

    def _check_progress(self, *, over: bool) -> dict[int, RankTrace]:
        """Return the traces of hanging ranks; none if they make progress, or the time is not `over`."""
        progress = self._pending_progress()
        if not self._failed and progress != self._progress:
            self._progress, self._limit, self._snapshot = progress, time.monotonic() + self._deadline, None
            self._excused_until = self._limit + _EXCUSED_SECONDS
        elif over:
            before, self._snapshot = self._snapshot, self._queued()
            excused = not self._failed and time.monotonic() <= self._excused_until
            if excused and before and starved(before, self._snapshot):
                self._limit = time.monotonic() + self._deadline
                return {}
            stuck = asked(self._pending(), self._job)
            if not excused or not any(IMPORTING in rank.stack for rank in stuck.values()):
                return stuck
            self._limit = time.monotonic() + self._deadline
        self._snapshot = self._snapshot or self._queued()
        return {}


def _read(link: RankLink, job: Job, launched: Launched) -> RankTrace | None:
    """Return a rank's answer if it has arrived completely, and a RankTrace of its death if the rank has ended."""
    try:
        link.jobs.fill()
        frame = link.jobs.pop()
    except ChannelClosed:
        return link.obituary(job, launched)
    return None if frame is None else _answer(link, frame)


def _answer(link: RankLink, frame: bytes | bytearray) -> RankTrace:
    """Decode an answer. A rank that sent other bytes is lost: its implementation may have written to a wrong
    descriptor.
    """
    try:
        return rank_from_plain(codec.decode(frame))
    except (ValueError, TypeError, KeyError, RecursionError):
        text = (
            f"rank {link.rank} sent {len(frame)} bytes that are not an answer: another program wrote to this connection"
        )
        return RankTrace(link.rank, "died", (), text, failed_at=time.monotonic())
