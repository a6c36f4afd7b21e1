"""A job, for programs: wait for it, read what it prints, bring home what it makes, stop it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from towline.client.events import events
from towline.client.follow import Following
from towline.client.transport import Gone, with_query
from towline.errors import JobFailed
from towline.model.names import SAYS_STATE
from towline.model.odd_text import original

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterator, Sequence
    from typing import Unpack

    from towline.client.asks import Options
    from towline.client.session import Session

FINAL = ("done", "failed", "stopped", "lost", "skipped")
#: How often a file is asked for again when the Engine goes away over it.
_TRIES = 10


def submit(
    command: str | Sequence[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    key: str = "",
    **options: Unpack[Options],
) -> Job:
    """Submit a command to this user's Engine, which is started when there is none, or to the team's
    server that the cluster is.

    Text is a line for a shell; a list is a program and its arguments. The folder (by default this
    one) travels as it is now. With a `key`, submitting it again gives the same job again.
    """
    from towline.client.team import session_for

    session, cluster = session_for(options.pop("cluster", None))
    if cluster is not None:
        options["cluster"] = cluster
    return session.submit(command, folder=folder, key=key, **options)


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    job: int
    #: `done`, `failed`, `stopped`, `lost`, or `skipped` because of what it was to run after.
    state: str
    #: The command's; 128 + n for signal n; None when no code is known.
    exit_code: int | None
    #: Why, in words; empty when it is done.
    reason: str
    machines: tuple[str, ...]
    #: Seconds since 1970; `started` is None when it never began.
    started: float | None
    ended: float | None
    #: The kind of the reason: `exit_code`, `signal`, `timeout`, `oom`, ...
    kind: str = ""

    @property
    def ok(self) -> bool:
        return self.state == "done"

    def __str__(self) -> str:
        why = self.reason.split("\n")[0]
        if not why and self.state == "failed" and self.exit_code is not None:
            why = f"exit code {self.exit_code}"
        said = f"{self.state}: {why}" if why and self.kind not in SAYS_STATE else why
        return f"job {self.job} {said or self.state}"


@dataclass(frozen=True)
class Piece:
    """Some of what a job printed."""

    #: `out` or `err`.
    stream: str
    data: bytes
    #: Of a job with several processes: which one, also as people read it.
    group: int = 0
    process: int = 0
    label: str = ""

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class Results:
    """What a job made, once it is home."""

    #: Where it is; None when there is nothing.
    folder: Path | None
    files: int
    bytes: int
    #: Files that a person has here with other content, and where the newer copy went.
    conflicts: tuple[tuple[str, str], ...]
    #: Paths that were asked for, and of which the job made nothing.
    missing: tuple[str, ...]


class Job:
    """One job of an Engine. Any thread may use it; nothing is kept open between two calls."""

    def __init__(self, session: Session, facts: dict[str, Any]) -> None:
        self.session = session
        self.id = int(facts["id"])
        #: What the Engine last told of it, as `tow show --json` prints it.
        self.facts = facts
        self._taken_home = False

    def __repr__(self) -> str:
        return f"<towline.Job {self.id}: {self.facts.get('title')}>"

    @property
    def state(self) -> str:
        """Where it stands now: `queued`, `running`, `done`, ..."""
        if not self._is_over():
            self.refresh()
        return str(self.facts["state"])

    def refresh(self) -> dict[str, Any]:
        """Ask the Engine for everything about it; `facts` from then on."""
        self.facts = self.session.call("GET", f"/v1/jobs/{self.id}")
        return self.facts

    def wait(self, timeout: float | None = None, *, check: bool = False) -> Outcome:
        """Wait until it has ended and what it made is home, whatever happens to the Engine.

        `timeout` is in seconds, and a TimeoutError leaves the job as it is. With `check`, a job
        that did not end well raises JobFailed.
        """
        self.refresh()
        if not self._is_home():
            try:
                self._await_home(None if timeout is None else time.monotonic() + timeout)
            except TimeoutError:
                raise TimeoutError(f"job {self.id} has not ended after {timeout:g} s") from None
        if not self._taken_home:
            self.session.take_home(self.id, self.facts)
            self._taken_home = True
        outcome = self._outcome()
        if check and not outcome.ok:
            raise JobFailed(str(outcome), f"what it printed: tow log {self.id}", outcome)
        return outcome

    def __await__(self) -> Generator[Any, None, Any]:
        """In asyncio, `await job` is `job.wait()`, and the loop goes on meanwhile."""
        import asyncio

        return asyncio.to_thread(self.wait).__await__()

    def follow(
        self,
        stream: str = "all",
        *,
        on_note: Callable[[str], None] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Iterator[Piece]:
        """All that it prints, from the beginning, as it comes, until it has ended.

        `stream` is `out`, `err` or `all`. `on_progress` is told how many bytes of how many were
        sent to its machine. A broken connection or another Engine repeats nothing.
        """
        following = Following(self.session, job_id=self.id, stream=stream)
        for header, blob in following.frames():
            self._heard(following, header, blob, on_note, on_progress)
            if "stream" in header and blob:
                yield _piece(header, blob)

    def log(self, stream: str = "all", *, lines: int = 0) -> str:
        """What it has printed so far, or the last lines of it; of several processes, one by one."""
        tail = {"lines": lines} if lines else {}
        following = Following(
            self.session, job_id=self.id, stream=stream, tail=tail, until_end=False
        )
        printed: dict[str, bytearray] = {}
        for header, blob in following.frames():
            self._heard(following, header, blob)
            if "stream" in header:
                printed.setdefault(str(header.get("label") or ""), bytearray()).extend(blob)
        return "".join(_labelled(label, bytes(text)) for label, text in sorted(printed.items()))

    def results(self, *paths: str) -> Results:
        """Bring home what it has made so far, or these paths of it; then tell where it is."""
        target = f"/v1/jobs/{self.id}/results"
        done = self.session.call("POST", target, {"back": list(paths)}, repeat=True)
        done |= self.session.take_home(self.id) or {}
        return Results(
            folder=Path(original(done["folder"])) if done["files"] else None,
            files=done["files"],
            bytes=done["bytes"],
            conflicts=tuple((kept, newer) for kept, newer in done["conflicts"]),
            missing=tuple(done["missing"]),
        )

    def files(self, path: str = "") -> list[dict[str, Any]]:
        """The entries of a folder of the job: `name`, `kind`, `size`, `mtime`, `mode`."""
        answer = self.session.call("GET", with_query(f"/v1/jobs/{self.id}/files", path=path))
        entries: list[dict[str, Any]] = answer["entries"]
        return entries

    def read(self, path: str) -> bytes:
        """The bytes of one of its files, also while it runs."""
        content = bytearray()
        for left in reversed(range(_TRIES)):
            target = with_query(f"/v1/jobs/{self.id}/file", path=path, offset=len(content))
            try:
                with self.session.open("GET", target) as reply:
                    while piece := reply.read():
                        content += piece
                break
            except Gone:
                if not left:
                    raise
        return bytes(content)

    def stop(self, *, now: bool = False) -> None:
        """Stop it, which takes a moment: `wait` tells when it has ended. `now` kills it at once."""
        self.session.stop(self, now=now)

    def _await_home(self, deadline: float | None) -> None:
        # From its first event on: it may have ended since it was last looked at.
        for event in events(self.session, since=0, job=self.id, deadline=deadline):
            if event.data.get("state") in FINAL or "results" in event.data:
                self.refresh()
                if self._is_home():
                    return

    def _heard(
        self,
        following: Following,
        header: dict[str, Any],
        blob: bytes,
        on_note: Callable[[str], None] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Take note of a frame that the Engine sent."""
        self.facts = {**self.facts, **following.view}
        if "stream" in header:
            following.told(header, blob)
        elif "note" in header and on_note is not None:
            on_note(str(header["note"]))
        elif "progress" in header and on_progress is not None:
            on_progress(header["progress"]["done"], header["progress"]["total"])

    def _is_over(self) -> bool:
        return self.facts["state"] in FINAL

    def _is_home(self) -> bool:
        return self._is_over() and (self.facts.get("home") or {}).get("kind") != "pending"

    def _outcome(self) -> Outcome:
        facts = self.facts
        state = str(facts["state"])
        return Outcome(
            job=self.id,
            state=state,
            exit_code=facts.get("exit_code"),
            reason="" if state == "done" else str(facts.get("reason") or ""),
            machines=tuple(facts.get("machines") or ()),
            started=facts.get("started"),
            ended=facts.get("ended"),
            kind=str((facts.get("because") or {}).get("kind") or ""),
        )


def _piece(header: dict[str, Any], blob: bytes) -> Piece:
    return Piece(
        stream=str(header["stream"]),
        data=blob,
        group=int(header.get("group") or 0),
        process=int(header.get("process") or 0),
        label=str(header.get("label") or ""),
    )


def _labelled(label: str, data: bytes) -> str:
    """What one of several processes printed, each line with its label as `tow log` has it."""
    text = data.decode("utf-8", "replace")
    if not label:
        return text
    return "".join(f"[{label}] {line}\n" for line in text.splitlines())
