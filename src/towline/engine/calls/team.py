"""What everybody may know of everybody's jobs."""

from datetime import UTC, datetime

from towline.api.team import StatusRow, TeamJobs, TeamStatus
from towline.engine.parts import EngineParts
from towline.engine.team.board import StatusBoard
from towline.engine.team.listing import ORDERS, JobWish, listed
from towline.errors import UsageError
from towline.model.principal import Principal


class TeamCalls:
    """Reports for the members of a team; a server may keep to itself what is not shared."""

    def __init__(self, parts: EngineParts) -> None:
        self._board = StatusBoard(parts)

    def status(self, who: Principal, most: int) -> TeamStatus:
        """What runs, what waits and what ended last."""
        return self._board.status(who, most)

    def short(self, who: Principal, job_id: int) -> StatusRow:
        """One job."""
        return self._board.shown(who, job_id)

    def jobs(
        self,
        who: Principal,
        *,
        since: str,
        till: str,
        user: str,
        title: str,
        asc: str,
        desc: str,
        limit: int,
        offset: int,
    ) -> TeamJobs:
        """Those that somebody wishes to see, the newest first unless told otherwise."""
        order = asc or desc or "date"
        if order not in ORDERS:
            name, hint = "asc" if asc else "desc", f"one of: {', '.join(ORDERS)}"
            raise UsageError(f"Cannot parse query parameter {name}", hint=hint)
        wish = JobWish(
            since=_moment("since", since),
            till=_moment("till", till),
            user=user,
            title=title,
            order=order,
            downwards=not asc,
            limit=limit,
            offset=offset,
        )
        return {"jobs": listed(self._board, who, wish)}


def _moment(name: str, typed: str) -> float:
    """A time as people write it, or in seconds since 1970."""
    if not typed:
        return 0.0
    try:
        return float(typed)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(typed)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        hint = "a time like 2026-11-18T09:00:00Z"
        raise UsageError(f"Cannot parse query parameter {name}", hint=hint) from None
