"""This user's Engine: reached over its socket, started when it does not answer."""

from __future__ import annotations

import json
import os
import sys
import time

from towline.client.transport import Gone, Reply, connect, request
from towline.config.paths import home_paths
from towline.errors import EngineError, TowlineError
from towline.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable, Iterator
    from subprocess import Popen
    from typing import Any

    from towline.client.transport import Body
    from towline.config.paths import Paths

#: A cold start from a slow disk, on a machine that has other things to do.
START_LIMIT_S = 60.0
END_LIMIT_S = 20.0
POLL_S = 0.01
#: A second Engine gives way to the first; this long the first may take until it listens.
GIVE_WAY_S = 2.0
#: How often what does no harm is asked again when the Engine goes away over it.
MOST_TRIES = 10


class ApiError(TowlineError):
    """What the Engine refused to do, and why."""

    def __init__(self, error: dict[str, Any], exit_code: int = 1) -> None:
        super().__init__(
            str(error.get("text") or "the Engine refused"), str(error.get("hint") or "")
        )
        self.code = str(error.get("code") or "error")
        self.exit_code = exit_code
        self.engine_version = ""
        #: How to log in to the machine that wants a password or a second factor.
        self.login: dict[str, Any] | None = error.get("login")
        #: The project's file that nobody trusted yet, and what it wants.
        self.trust: dict[str, Any] | None = error.get("trust")


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

    def submit(self, ask: dict[str, Any], key: str) -> dict[str, Any]:
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
            connect_or_start(self.paths).close()
            about = self.running()
            if about is not None:
                break
        if not (about or {}).get("keys"):
            raise EngineError(
                "the Engine went away before it said whether it accepted the job",
                "look whether it is there: tow status",
            )

    def frames(
        self, method: str, target: str, body: Any = None, key: str = ""
    ) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Every frame of a streaming answer; an `error` frame is raised."""
        said_anything = False
        with self.open(method, target, _encoded(body), key) as reply:
            for header, blob in reply.frames():
                if "error" in header:
                    error = ApiError(header["error"], int(header.get("exit") or 1))
                    if said_anything or not self._mended(error):
                        raise error
                    break
                said_anything = True
                yield header, blob
            else:
                return
        yield from self.frames(method, target, body, key)

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
        try:
            with request(connect(self.paths.socket), "GET", "/v1/engine") as reply:
                answer: dict[str, Any] = json.loads(reply.read_all())
                return answer
        except (OSError, Gone, ValueError):
            return None

    def retire(self) -> bool:
        """Ask the Engine to end, and wait until it did; False when there was none."""
        before = self.running()
        if before is None:
            return False
        try:
            request(connect(self.paths.socket), "POST", "/v1/engine/retire", b"{}").close()
        except (OSError, Gone):
            pass  # It may have been on its way out already.
        deadline = time.monotonic() + END_LIMIT_S
        while (now := self.running()) is not None and now.get("pid") == before.get("pid"):
            if time.monotonic() > deadline:
                raise EngineError(
                    f"the Engine (process {before.get('pid')}) does not end",
                    f"end it yourself: kill {before.get('pid')}; running jobs go on",
                )
            time.sleep(POLL_S)
        return True

    def _answer(self, method: str, target: str, body: Any, key: str = "") -> Any:
        with self.open(method, target, _encoded(body), key) as reply:
            text = reply.read_all()
        return json.loads(text) if text else {}

    def _open_once(self, method: str, target: str, body: Body, key: str) -> Reply:
        headers = {} if self._outdated else {"Towline-Version": __version__}
        if key:
            headers["Idempotency-Key"] = key
        reply = request(connect_or_start(self.paths), method, target, body, headers)
        if reply.status < 400:
            return reply
        with reply:
            error = _refusal(reply)
        error.engine_version = reply.headers.get("towline-version", "")
        raise error


def connect_or_start(paths: Paths) -> socket:
    """A connection to the Engine, which is started when there is none."""
    try:
        return connect(paths.socket)
    except (FileNotFoundError, ConnectionRefusedError):
        return start(paths)
    except OSError as error:
        raise EngineError(
            f"cannot use the Engine's socket {paths.socket}: {error.strerror}"
        ) from None


def start(paths: Paths) -> socket:
    """Start the Engine and connect to it; of two started at once, one gives way by itself."""
    from towline.config.lock import check_holder

    check_holder(paths)
    log_size = _size(paths.log_file)
    child = _launch(paths)
    deadline = time.monotonic() + START_LIMIT_S
    ended: float | None = None
    while time.monotonic() < deadline:
        try:
            return connect(paths.socket)
        except OSError:
            time.sleep(POLL_S)
        code = child.poll()
        if code is not None and code < 0:
            # Killed, which says nothing about the next one.
            child = _launch(paths)
            continue
        ended = (ended or time.monotonic()) if code is not None else None
        if ended and time.monotonic() > ended + GIVE_WAY_S:
            if code:
                raise EngineError(
                    "the Engine does not start", _last_lines(paths.log_file, log_size)
                )
            # The one it gave way to has ended meanwhile.
            child = _launch(paths)
    raise EngineError(
        f"the Engine does not answer on {paths.socket}", _last_lines(paths.log_file, log_size)
    )


def _launch(paths: Paths) -> Popen[bytes]:
    import subprocess

    from towline.config.paths import make_folders

    make_folders(paths)
    # It stands in another folder, where a relative path would lead elsewhere.
    home = {"TOWLINE_HOME": paths.home} if os.environ.get("TOWLINE_HOME") else {}
    log = os.open(paths.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "towline.server.laptop"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={**os.environ, **home},
            start_new_session=True,
        )
    finally:
        os.close(log)


def _refusal(reply: Reply) -> ApiError:
    try:
        answer = json.loads(reply.read_all())
        error = dict(answer["error"])
        error.setdefault("login", answer.get("login"))
        return ApiError(error, int(answer.get("exit") or 1))
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


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _last_lines(path: str, start: int, count: int = 10) -> str:
    """The end of what the Engine logged since `start`."""
    try:
        with open(path, "rb") as log:
            log.seek(max(start, os.fstat(log.fileno()).st_size - 8192))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    if lines:
        return "\n  ".join(["its log ends with:", *lines[-count:]])
    return _no_room(os.path.dirname(path)) or f"its log: {path}"


def _no_room(folder: str) -> str:
    """Why nothing can be written there, if that is so: then the log says nothing, either."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return f"{folder} cannot be looked at"
    if disk.f_bavail * disk.f_frsize < 65536:
        return f"the disk of {folder} is full: free some space there"
    return "" if os.access(folder, os.W_OK) else f"{folder} cannot be written to"
