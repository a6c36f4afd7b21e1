"""The log of a job: what its workers printed, with times, and what became of it."""

from __future__ import annotations

import re
import time

from towline.cli.pit.failures import Failed
from towline.cli.pit.session import PitSession
from towline.cli.pit.typed.names import job_number
from towline.cli.terminal import write
from towline.client.follow import Following

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from towline.cli.pit.typed.grammar import Typed

#: As workers write them, in UTC.
_STAMPED = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] ?")
_FORMAT = "%Y-%m-%d %H:%M:%S"
_ENDED = re.compile(rb"Worker \d+ ended with exit code -?\d+")
_OVER = ("done", "failed", "stopped", "lost", "skipped")
#: Reasons for an end that the log tells by itself, or that somebody wanted.
_TOLD = ("", "exit_code", "stopped", "stop_asked")


def log(typed: Typed) -> None:
    print_log(PitSession(), job_number(typed.words[0]))


def print_log(session: PitSession, number: int) -> None:
    """All of it, to the end of the job."""
    for line in log_lines(session, number):
        write(1, line)


def log_lines(session: PitSession, number: int, until_end: bool = True) -> Iterator[bytes]:
    """Every line of the log, as it comes; of a job that is over, in the order of their times."""
    return Log(session, number, until_end).lines()


class Log:
    """The log of one job while it is read."""

    def __init__(self, session: PitSession, number: int, until_end: bool) -> None:
        self.following = Following(session, job_id=number, until_end=until_end)
        self.number = number
        #: Worker -> what it has printed of a line that is not complete.
        self._rest: dict[int, bytes] = {}
        self._ranks: dict[tuple[int, int], int] = {}
        self._begun = False
        #: Workers that ended by themselves, and when.
        self._ended: dict[int, bytes] = {}
        self._last = b""

    def lines(self) -> Iterator[bytes]:
        waiting: list[tuple[bytes, bytes]] | None = None
        view: dict[str, Any] = {}
        for header, blob in self.following.frames():
            view = header.get("job") or header.get("end") or view
            if "job" in header and view["state"] in _OVER:
                waiting = []
            if not self._begun and view.get("started"):
                self._begun = True
                self._last = _local(view["started"])
                yield _line(self._last, b"daemon", b"Pit daemon started")
            if "stream" not in header:
                continue
            self.following.told(header, blob)
            found = self._of_worker(self._rank(header, view), blob)
            if waiting is None:
                yield from (line for _, line in found)
            else:
                waiting += found
        yield from self._end(waiting or [], view)

    def _end(self, waiting: list[tuple[bytes, bytes]], view: dict[str, Any]) -> Iterator[bytes]:
        for rank, rest in list(self._rest.items()):
            waiting += self._of_worker(rank, b"\n") if rest else []
        yield from (line for _, line in sorted(waiting, key=lambda one: one[0]))
        if not self._begun:
            raise Failed("Not Found", view.get("reason") or f"job {self.number} has no log")
        for rank, at in self._ended.items():
            yield _line(at, b"daemon", b"Worker %d requested stop. Stopping pit..." % rank)
        because = (view.get("because") or {}).get("kind", "")
        if view.get("state") in _OVER and because not in _TOLD:
            at = _local(view.get("ended") or time.time())
            for line in str(view.get("reason") or "").splitlines():
                yield _line(at, b"daemon", line.encode("utf-8", "replace"))

    def _rank(self, header: dict[str, Any], view: dict[str, Any]) -> int:
        """Workers are counted over all groups."""
        if not self._ranks:
            from towline.model.grammar import parse_request

            processes = parse_request(view["request"]).processes()
            self._ranks = {(group, one): rank for rank, (group, one, _) in enumerate(processes)}
        return self._ranks.get((header.get("group", 0), header.get("process", 0)), 0)

    def _of_worker(self, rank: int, blob: bytes) -> list[tuple[bytes, bytes]]:
        """Complete lines, each with its time in front for sorting."""
        lines = (self._rest.get(rank, b"") + blob).split(b"\n")
        self._rest[rank] = lines.pop()
        found = []
        for raw in lines:
            stamped = _STAMPED.match(raw)
            text = raw[stamped.end() :] if stamped else raw
            at = _shown(stamped[1]) if stamped else self._last
            self._last = at
            if _ENDED.fullmatch(text):
                self._ended[rank] = at
            found.append((at, _line(at, b"worker %d" % rank, text)))
        return found


def _line(at: bytes, who: bytes, text: bytes) -> bytes:
    return b"[%s] [%s] %s\n" % (at, who, text)


def _shown(stamp: bytes) -> bytes:
    """A time of a worker, as the clock on this wall has it."""
    import calendar

    try:
        return _local(calendar.timegm(time.strptime(stamp.decode(), _FORMAT)))
    except ValueError:
        return stamp


def _local(at: float) -> bytes:
    return time.strftime(_FORMAT, time.localtime(at)).encode()
