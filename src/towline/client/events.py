"""What happens in an Engine, as it happens: its journal, over broken connections and restarts."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from towline.client.follow import Patience
from towline.client.transport import with_query
from towline.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from towline.client.session import Session
    from towline.client.transport import Reply

#: Says after which event an answer begins.
_SEQ_HEADER = "towline-seq"


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    #: Its place in the journal: each has a greater one than all before it.
    seq: int
    #: Seconds since 1970.
    at: float
    #: `submitted`, `running`, `ended`, `home`, ...
    kind: str
    owner: str
    #: The job it is about; 0 where it is about none.
    job: int
    batch: str
    attempt: int
    machine: str
    #: The fields that changed.
    data: dict[str, Any]
    #: The event in words.
    text: str


def events(
    session: Session,
    *,
    since: int = -1,
    job: int = 0,
    batch: str = "",
    follow: bool = True,
    deadline: float | None = None,
) -> Iterator[Event]:
    """Every event after the one numbered `since` (-1: from now on), each once and in order."""
    patience = Patience()
    while True:
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError
        target = with_query(
            "/v1/events", since=since, job=job or None, batch=batch or None, follow=int(follow)
        )
        try:
            with session.open("GET", target) as reply:
                since = int(reply.headers.get(_SEQ_HEADER, since))
                reply.deadline = deadline
                for event in _read(reply):
                    patience.heard()
                    since = event.seq
                    yield event
            if not follow:
                return
        except EngineError as error:
            patience.bear(error)
        patience.wait()


def seq_now(session: Session) -> int:
    """The number of the last event so far."""
    patience = Patience()
    while True:
        try:
            with session.open("GET", with_query("/v1/events", since=-1, follow=0)) as reply:
                return int(reply.headers[_SEQ_HEADER])
        except EngineError as error:
            patience.bear(error)
        patience.wait()


def _read(reply: Reply) -> Iterator[Event]:
    """The events of a stream of server-sent ones; comments, which show that it lives, are not."""
    text = b""
    while piece := reply.read():
        *messages, text = (text + piece).split(b"\n\n")
        for message in messages:
            data = next((line for line in message.split(b"\n") if line.startswith(b"data: ")), None)
            if data is not None:
                yield _event(json.loads(data[len(b"data: ") :]))


def _event(told: dict[str, Any]) -> Event:
    return Event(**{name: told[name] for name in Event.__dataclass_fields__})
