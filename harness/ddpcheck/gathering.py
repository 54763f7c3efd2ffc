"""The ranks' answers to one Job: what each saw, or what became of it."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence

from . import codec
from .channel import ChannelClosed
from .job import Job
from .launchers.base import Launched
from .rank_link import RankLink
from .trace import RankTrace, rank_from_plain

_LOOKS = 10
"""How often within a deadline one looks whether a rank has got on."""


def gathered(
    job: Job, links: Sequence[RankLink], launched: Launched, deadline: float, grace: float
) -> dict[int, RankTrace]:
    """One RankTrace for each rank, within `deadline` seconds of the last one's entering an operation (who is slow is not
    stuck), and `grace` seconds once one has failed.

    Ranks that have not answered by then are asked where they stand.
    """
    answers: dict[int, RankTrace] = {}
    poller = select.poll()
    for link in links:
        frame = link.jobs.pop()
        if frame is not None:
            answers[link.rank] = rank_from_plain(codec.decode(frame))
        else:
            poller.register(link.jobs.fileno(), select.POLLIN)
    by_file = {link.jobs.fileno(): link for link in links}
    limit = time.monotonic() + deadline
    failed = any(answer.outcome != "done" for answer in answers.values())
    if failed:
        limit = min(limit, time.monotonic() + grace)
    stood = [link.position() for link in links if link.rank not in answers]
    while len(answers) < len(links):
        left = max(0.0, limit - time.monotonic())
        ready = poller.poll(min(left, deadline / _LOOKS) * 1000)
        if not ready:
            stand = [link.position() for link in links if link.rank not in answers]
            if not failed and stand != stood:
                stood, limit = stand, time.monotonic() + deadline
            elif not left:
                break
            continue
        for file, _ in ready:
            link = by_file[file]
            answer = _read(link, job, launched)
            if answer is None:
                continue
            answers[link.rank] = answer
            poller.unregister(file)
            if answer.outcome != "done" and not failed:
                failed = True
                limit = min(limit, time.monotonic() + grace)
    stuck = [link for link in links if link.rank not in answers]
    for link in stuck:
        link.ask()
    return answers | {link.rank: link.report(job) for link in stuck}


def _read(link: RankLink, job: Job, launched: Launched) -> RankTrace | None:
    """A rank's answer if a whole one has come; the story of its death if it is gone."""
    try:
        link.jobs.fill()
    except ChannelClosed:
        return link.obituary(job, launched)
    frame = link.jobs.pop()
    return None if frame is None else rank_from_plain(codec.decode(frame))
