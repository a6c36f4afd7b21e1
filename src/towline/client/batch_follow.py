"""Following a batch until it ended, over broken connections and restarted Engines."""

from __future__ import annotations

from towline.client.follow import Patience
from towline.client.transport import quoted, with_query
from towline.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from towline.client.session import Session

#: The parts of an event, as the Engine sends it.
EVENT = (
    *("seq", "at", "job", "line", "state", "machine", "gpus", "exit_code", "text"),
    *("kind", "because", "reason"),
)


def follow_batch(
    session: Session, name: str, since: int = 0
) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """What happened to its jobs after the event numbered `since`, and the batch as it is then.

    No event is told twice or left out; the last view is that of its end.
    """
    patience = Patience()
    while True:
        target = with_query(f"/v1/batches/{quoted(name)}/follow", since=since)
        try:
            for header, _ in session.frames("GET", target):
                patience.heard()
                titles = header.get("titles") or {}
                events = [_event_of(values, titles) for values in header.get("events") or []]
                fresh = [event for event in events if event["seq"] > since]
                since = fresh[-1]["seq"] if fresh else since
                yield fresh, header["batch"]
                if header.get("over"):
                    return
        except EngineError as error:
            patience.bear(error)
        patience.wait()


def _event_of(values: list[Any], titles: dict[str, str]) -> dict[str, Any]:
    """An event with names to its parts, and the title of its job."""
    event = dict(zip(EVENT, values, strict=True))
    return {**event, "title": titles.get(str(event["job"]), "")}
