"""Jobs of a team, listed by wish."""

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from towline.api.team import StatusRow
from towline.engine.team.board import StatusBoard, since
from towline.model.job import Job, standing
from towline.model.principal import Principal

#: Of a list: rows at most, and jobs that are looked through.
MOST_ROWS = 100
_MOST_LOOKED_AT = 10_000
#: What a list can be sorted by.
ORDERS: dict[str, Callable[[Job], Any]] = {
    "date": since,
    "user": lambda job: job.spec.owner,
    "title": lambda job: job.spec.title,
    "state": standing,
}


class JobWish(Struct, frozen=True):
    """Which jobs a list is to have; what is empty chooses nothing."""

    since: float = 0.0
    till: float = 0.0
    user: str = ""
    #: With `%` for anything and `_` for one character, as in SQL.
    title: str = ""
    order: str = "date"
    downwards: bool = True
    limit: int = MOST_ROWS
    offset: int = 0


def listed(board: StatusBoard, who: Principal, wish: JobWish) -> list[StatusRow]:
    """The jobs that somebody wishes to see."""
    like, store = _like(wish.title), board.engine.store
    found = [
        *store.active(owner=wish.user),
        *store.ended(wish.since, _MOST_LOOKED_AT, owner=wish.user),
    ]
    within = [
        job
        for job in found
        if since(job) >= wish.since
        and (not wish.till or since(job) <= wish.till)
        and like.fullmatch(job.spec.title)
        and board.tells(who, job)
    ]
    within.sort(key=ORDERS[wish.order], reverse=wish.downwards)
    page = within[wish.offset : wish.offset + min(wish.limit, MOST_ROWS)]
    return [board.row(job, board.position(job)) for job in page]


def _like(pattern: str) -> re.Pattern[str]:
    if not pattern:
        return re.compile(".*", re.DOTALL)
    words = "".join({"%": ".*", "_": "."}.get(sign) or re.escape(sign) for sign in pattern)
    return re.compile(words, re.DOTALL | re.IGNORECASE)
