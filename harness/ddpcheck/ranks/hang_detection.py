"""The ranks' answers to one Job, with hang detection: each rank's results, or how it failed."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence

from ..job import Close, Job, Kill
from ..launchers.base import Launched
from ..launchers.starvation import Snapshot, snapshot, starved
from ..storage import codec
from ..trace import IMPORTING, RankTrace, rank_from_plain
from . import low_priority_poll
from .channel import ChannelClosed
from .rank_link import RankLink, asked

_LOOKS = 10
"""The number of progress checks within a deadline."""

_TO_IMPORT = 60.0
"""Seconds for imports at first use: a large framework on a busy machine."""


def gather_reports(
    job: Job, links: Sequence[RankLink], launched: Launched, deadline: float, grace: float
) -> dict[int, RankTrace]:
    """One RankTrace for each rank, within `deadline` seconds of the last one's entering an operation (who is slow is not
    stuck; who imports a module is slow, and so is who gets no processor), and `grace` seconds once one has failed.

    Ranks that have not answered by then are asked where they stand. Where the Job kills a rank and the others close, they
    have the whole deadline: close() may take its time.
    """
    answers: dict[int, RankTrace] = {}
    poller = select.poll()
    for link in links:
        frame = link.jobs.pop()
        if frame is not None:
            answers[link.rank] = _answer(link, frame)
        else:
            poller.register(link.jobs.fileno(), select.POLLIN)
    by_file = {link.jobs.fileno(): link for link in links}
    limit = time.monotonic() + deadline
    imports_until = limit + _TO_IMPORT
    killed = {each.rank for each in job.operations if isinstance(each, Kill)}
    expected = killed if any(isinstance(each, Close) for each in job.operations) else set()
    failed = any(answer.outcome != "done" and rank not in expected for rank, answer in answers.items())
    if failed:
        limit = min(limit, time.monotonic() + grace)
    stood = [link.progress() for link in links if link.rank not in answers]
    queues: Snapshot | None = None  # taken once nobody is ready: most Jobs are done by then
    while len(answers) < len(links):
        left = max(0.0, limit - time.monotonic())
        ready = low_priority_poll.poll(poller, min(left, deadline / _LOOKS) * 1000)
        if not ready:
            stand = [link.progress() for link in links if link.rank not in answers]
            if not failed and stand != stood:
                stood, limit, queues = stand, time.monotonic() + deadline, None
            elif not left:
                before, queues = queues, snapshot(link.queued() for link in links)
                if not failed and time.monotonic() < imports_until and before and starved(before, queues):
                    limit = time.monotonic() + deadline
                    continue
                stuck = asked([link for link in links if link.rank not in answers], job)
                if (
                    failed
                    or time.monotonic() > imports_until
                    or not any(IMPORTING in rank.stack for rank in stuck.values())
                ):
                    return answers | stuck
                limit = time.monotonic() + deadline
            queues = queues or snapshot(link.queued() for link in links)
            continue
        for file, _ in ready:
            link = by_file[file]
            answer = _read(link, job, launched)
            if answer is None:
                continue
            answers[link.rank] = answer
            poller.unregister(file)
            if answer.outcome != "done" and link.rank not in expected and not failed:
                failed = True
                limit = min(limit, time.monotonic() + grace)
    return answers


def _read(link: RankLink, job: Job, launched: Launched) -> RankTrace | None:
    """A rank's answer if it has arrived completely; a RankTrace of its death if the rank has ended."""
    try:
        link.jobs.fill()
        frame = link.jobs.pop()
    except ChannelClosed:
        return link.obituary(job, launched)
    return None if frame is None else _answer(link, frame)


def _answer(link: RankLink, frame: bytes | bytearray) -> RankTrace:
    """A rank whose connection carries something else is lost: its implementation may have written to a number that it took for a
    file of its own.
    """
    try:
        return rank_from_plain(codec.decode(frame))
    except (ValueError, TypeError, KeyError, RecursionError):
        text = f"rank {link.rank} sent {len(frame)} bytes that are no answer: another program wrote to this connection"
        return RankTrace(link.rank, "died", (), text, failed_at=time.monotonic())
