"""A session with an Engine: what is asked, and what to do when it is not answered."""

from __future__ import annotations

import json
import os

from towline import errors
from towline.client.transport import Gone, Reply, connect, request, with_query
from towline.config.paths import home_paths
from towline.errors import EngineError, TowlineError
from towline.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Unpack

    from towline.client.asks import Options
    from towline.client.events import Event
    from towline.client.job import Job
    from towline.client.transport import Body, Connection
    from towline.config.paths import Paths

#: How often what does no harm is asked again when the Engine goes away over it.
MOST_TRIES = 10


class ApiError(TowlineError):
    """What the Engine refused to do, and why."""

    def __init__(self, error: dict[str, Any], exit_code: int = 1) -> None:
        text, hint = str(error.get("text") or "the Engine refused"), str(error.get("hint") or "")
        # Not `super()`: whatever else it is, it is made of what the Engine sent.
        TowlineError.__init__(self, text, hint)
        self.code = str(error.get("code") or "error")
        self.exit_code = exit_code
        self.engine_version = ""
        #: How to log in to the machine that wants a password or a second factor.
        self.login: dict[str, Any] | None = error.get("login")
        #: The words of a queue that would refuse a job.
        self.said = str(error.get("said") or "")
        #: The project's file that nobody trusted yet, and what it wants.
        self.trust: dict[str, Any] | None = error.get("trust")

    def facts(self) -> dict[str, object]:
        return {"trust": self.trust} if self.trust else {}


class Login:
    """A machine that wants a person: a password, a second factor, a host key to look at."""

    def __init__(self, facts: dict[str, Any]) -> None:
        #: What ssh dials.
        self.target = str(facts["target"])
        #: The machine's name, for people and for the Engine.
        self.machine = str(facts.get("machine") or self.target)
        #: ssh, which asks on the terminal and then stays behind as the connection's master.
        self.command = [str(word) for word in facts["command"]]


class Trust:
    """A project's file that wants to decide what runs where, as it is now."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.file = str(facts["file"])
        self.digest = str(facts["digest"])
        #: What it says.
        self.settings: dict[str, Any] = facts["settings"]


class Session:
    """The Engine's API, for commands and programs; any number of threads may use one.

    What only a person can do is asked for through `on_login` and `on_trust`. Each is called in the
    thread that needs it and returns True once it is done; then the request is sent again. Without
    them, it fails and says what to type.
    """

    #: What jobs made is taken home by whoever asked for it, not by the Engine.
    takes_home = False
    #: What people type for its jobs.
    typed = "tow"

    def __init__(
        self,
        paths: Paths | None = None,
        *,
        on_login: Callable[[Login], bool] | None = None,
        on_trust: Callable[[Trust], bool] | None = None,
    ) -> None:
        self.paths = paths or home_paths()
        self.on_login = on_login
        self.on_trust = on_trust
        #: The Engine is newer than this command, which began before an upgrade: they get along.
        self._outdated = False

    def call(self, method: str, target: str, body: Any = None, *, repeat: bool = False) -> Any:
        """The JSON answer to one request; `repeat` says that doing it twice does no harm."""
        tries = MOST_TRIES if repeat or method in ("GET", "DELETE") else 1
        while True:
            tries -= 1
            try:
                return self._answer(method, target, body)
            except Gone:
                if not tries:
                    raise

    def submit(
        self,
        command: str | Sequence[str],
        *,
        folder: str | os.PathLike[str] | None = None,
        key: str = "",
        **options: Unpack[Options],
    ) -> Job:
        """Submit a command; as `towline.submit`, with what this session was given."""
        from towline.client.asks import ask_for
        from towline.client.job import Job
        from towline.client.submission import new_key

        return Job(self, self.submit_ask(ask_for(command, folder, options), key or new_key()))

    def job(self, name: int | str) -> Job:
        """The job of this number, or that people call so: a title, `BATCH.LINE`, `last`."""
        from towline.client.job import Job
        from towline.client.names import job_number

        return Job(self, self.call("GET", f"/v1/jobs/{job_number(self, str(name))}"))

    def jobs(self, *, state: str = "", cluster: str = "", everything: bool = False) -> list[Job]:
        """Those that are active or ended lately, oldest first; a `state` may also be `active`."""
        from towline.client.job import Job

        target = with_query(
            "/v1/jobs", state=state or None, cluster=cluster or None, all=int(everything)
        )
        return [Job(self, facts) for facts in self.call("GET", target)["jobs"]]

    def batches(self, *, everything: bool = False) -> list[dict[str, Any]]:
        """Those that are active or ended lately, as `tow batch list --json` prints them."""
        from towline.client.batches import batches

        return batches(self, everything)

    def stop(self, *jobs: Job | int, now: bool = False) -> None:
        """Stop jobs, which takes them a moment; `now` kills them at once."""
        numbers = [job if isinstance(job, int) else job.id for job in jobs]
        self.call("POST", "/v1/jobs/stop", {"ids": numbers, "now": now}, repeat=True)

    def events(
        self, *, since: int = -1, job: int = 0, batch: str = "", follow: bool = True
    ) -> Iterator[Event]:
        """Every event after the one numbered `since` (-1: from now on), each once and in order.

        `job` and `batch` choose; without `follow` it ends with what has happened by now.
        """
        from towline.client.events import events

        return events(self, since=since, job=job, batch=batch, follow=follow)

    def submit_ask(self, ask: dict[str, Any], key: str) -> dict[str, Any]:
        """The job that the Engine made of `ask`; never two, however often it has to be asked."""
        job: dict[str, Any] = self.once("/v1/jobs", {"jobs": [ask]}, key)["jobs"][0]
        return job

    def once(self, target: str, body: Any, key: str) -> Any:
        """The answer to a submission, which the Engine recognises by its key if it has it."""
        while True:
            try:
                return self._answer("POST", target, body, key)
            except Gone:
                self.check_key_known()

    def check_key_known(self) -> None:
        """Raise unless the Engine recognises a submission that it has seen before by its key."""
        about = None
        for _ in range(MOST_TRIES):
            self.connect().close()
            about = self.running()
            if about is not None:
                break
        if not (about or {}).get("keys"):
            raise EngineError(
                "the Engine went away before it said whether it accepted the job",
                "look whether it is there: tow status",
            )

    def frames(
        self,
        method: str,
        target: str,
        body: Any = None,
        key: str = "",
        *,
        deadline: float | None = None,
    ) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Every frame of a streaming answer; an `error` frame is raised."""
        said_anything = False
        with self.open(method, target, _encoded(body), key) as reply:
            reply.deadline = deadline
            for header, blob in reply.frames():
                if "error" in header:
                    error = refused(header["error"], int(header.get("exit") or 1))
                    if said_anything or not (self._mended(error) or _completed(error, body)):
                        raise error
                    break
                said_anything = True
                yield header, blob
            else:
                return
        yield from self.frames(method, target, body, key, deadline=deadline)

    def connect(self, submission: Body = None) -> Connection:
        """A connection to the Engine, which is started, for a submission, when there is none.

        Nothing else here knows where an Engine is; a team's server is reached in remote.py.
        """
        try:
            return connect(self.paths.socket)
        except (FileNotFoundError, ConnectionRefusedError):
            from towline.client.local import first_job, start

            return start(self.paths, first_job(submission))
        except OSError as error:
            raise EngineError(
                f"cannot use the Engine's socket {self.paths.socket}: {error.strerror}"
            ) from None

    def open(self, method: str, target: str, body: Body = None, key: str = "") -> Reply:
        """The reply to one request, its body not yet read; starts or replaces the Engine first."""
        mended: set[str] = set()
        while True:
            try:
                return self._open_once(method, target, body, key)
            except ApiError as error:
                # What a person was asked about once, and did not help, is told.
                if error.code in mended or not self._can_go_on(error):
                    raise
                mended.add(error.code)

    def _can_go_on(self, error: ApiError) -> bool:
        """True when what was wrong is mended, so that the same request can be sent again."""
        if error.code != "version":
            return self._mended(error)
        self._outdated = _is_newer(error.engine_version)
        if not self._outdated:
            self.retire()
        return True

    def _mended(self, error: ApiError) -> bool:
        """Ask a person for what is missing; False when it is still missing."""
        if error.trust:
            wanted = Trust(error.trust)
            return bool(self.on_trust and self.on_trust(wanted) and self.trust(wanted))
        if not error.login:
            return False
        if self.on_login is None:
            from towline.model.names import shown_cluster

            name = shown_cluster(Login(error.login).machine)
            error.hint = error.hint or f"type on a terminal: tow login {name}"
            return False
        return self.log_in([error.login])

    def trust(self, wanted: Trust) -> bool:
        """Let the project's file decide, until it changes."""
        body = {"cwd": os.path.dirname(wanted.file), "digest": wanted.digest}
        self.call("POST", "/v1/trust", body, repeat=True)
        return True

    def log_in(self, logins: list[dict[str, Any]]) -> bool:
        """Have a person log in to each of these; True when all of them are open afterwards."""
        if self.on_login is None:
            return False
        opened = [login.machine for login in map(Login, logins) if self.on_login(login)]
        if opened:
            self.call("POST", "/v1/machines/redial", {"machines": opened}, repeat=True)
        return len(opened) == len(logins)

    def running(self) -> dict[str, Any] | None:
        """What the Engine says of itself, whatever its version; None when there is none."""
        from towline.client.local import running

        return running(self.paths)

    def take_home(self, job_id: int, facts: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Take the results of an ended job home, of which all is known that is in `facts`; what
        came of it. None: one's own Engine has done that itself."""
        return None

    def retire(self) -> bool:
        """Ask the Engine to end, and wait until it did; False when there was none."""
        from towline.client.local import retire

        return retire(self.paths)

    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        return {} if self._outdated else {"Towline-Version": __version__}

    def _answer(self, method: str, target: str, body: Any, key: str = "") -> Any:
        try:
            reply = self.open(method, target, _encoded(body), key)
        except ApiError as error:
            if not _completed(error, body):
                raise
            reply = self.open(method, target, _encoded(body), key)
        with reply:
            text = reply.read_all()
        return json.loads(text) if text else {}

    def _open_once(self, method: str, target: str, body: Body, key: str) -> Reply:
        headers = self.headers()
        if key:
            headers["Idempotency-Key"] = key
        connection = self.connect(submission=body if key else None)
        reply = request(connection, method, target, body, headers)
        if reply.status < 400:
            return reply
        with reply:
            error = _refusal(reply)
        error.engine_version = reply.headers.get("towline-version", "")
        raise error


def refused(error: dict[str, Any], exit_code: int) -> ApiError:
    """What the Engine refused, as the class that it had there: `except NotFound` finds it."""
    code = error.get("code")
    for kind in vars(errors).values():
        if isinstance(kind, type) and kind is not TowlineError and vars(kind).get("code") == code:
            both = type(kind.__name__, (ApiError, kind), {"__module__": kind.__module__})
            made: ApiError = both(error, exit_code)
            return made
    return ApiError(error, exit_code)


def _completed(error: ApiError, body: Any) -> bool:
    """Add what the Engine asks for; True when the same can be asked again with it."""
    if error.code != "environment_wanted":
        return False
    from towline.client.submission import add_environment

    return add_environment(body)


def _refusal(reply: Reply) -> ApiError:
    try:
        answer = json.loads(reply.read_all())
        error = dict(answer["error"])
        error.setdefault("login", answer.get("login"))
        return refused(error, int(answer.get("exit") or 1))
    except (ValueError, KeyError, TypeError):
        text = f"the Engine answered {reply.status} and did not say why"
        return ApiError({"text": text, "hint": "its log may tell: tow engine log"})


def _is_newer(version: str) -> bool:
    return _numbers(version) > _numbers(__version__)


def _numbers(version: str) -> list[int]:
    """`1.10.2` as numbers, up to the first part that is none."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return numbers


def _encoded(body: Any) -> bytes | None:
    if body is None:
        return None
    try:
        return json.dumps(body, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        # An argument that is not UTF-8, which Python holds as lone surrogates.
        return json.dumps(body).encode("ascii")
