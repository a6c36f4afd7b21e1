"""A session with a team's server: the same API over HTTPS, for whoever has a token."""

from __future__ import annotations

import errno
import json

from towline.client.session import MOST_TRIES, ApiError, Session
from towline.client.transport import FrameUpload, Gone, with_query
from towline.errors import ConfigError, EngineError, TowlineError, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from ssl import SSLContext
    from typing import Any

    from towline.client.transport import Body, Connection
    from towline.config.paths import Paths

PORT = 443
CONNECT_S = 20.0
#: What takes the snapshot of a folder.
SUBMITTING = ("/v1/run", "/v1/jobs", "/v1/batches", "/v1/plan")


class ServerUnreachable(Unreachable, EngineError):
    """A team's server does not answer; `errno_name` says how, e.g. ECONNREFUSED."""

    def __init__(self, url: str, error: OSError) -> None:
        super().__init__(f"cannot reach {url}: {error.strerror or error}")
        self.errno_name = errno.errorcode.get(error.errno or 0, "") or type(error).__name__


class NotItsCertificate(TowlineError):
    """Something else answers, or the server has got another certificate."""

    code = "certificate"


class RemoteSession(Session):
    """The API of a team's server; what only one's own Engine can do is refused there."""

    def __init__(
        self,
        url: str,
        certificate: str = "",
        token: str = "",
        *,
        paths: Paths | None = None,
        on_sign_in: Callable[[], str] | None = None,
        prepare: Callable[[RemoteSession, dict[str, Any]], None] | None = None,
    ) -> None:
        """`certificate` is the one to trust (PEM); empty: those that this machine trusts.

        `on_sign_in` is called when the token does not hold any more, and returns a new one.
        `prepare` completes what is submitted: the server knows no folder of ours.
        """
        super().__init__(paths)
        self.url = url.rstrip("/")
        self.host, self.port = host_and_port(self.url)
        self.token = token
        self.on_sign_in = on_sign_in
        self.prepare = prepare
        self._certificate = certificate
        self._context: SSLContext | None = None

    def connect(self, submission: Body = None) -> Connection:
        import socket
        import ssl

        try:
            plain = socket.create_connection((self.host, self.port), CONNECT_S)
        except OSError as error:
            raise ServerUnreachable(self.url, error) from None
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._trusting().wrap_socket(plain, server_hostname=self.host)
        except ssl.SSLCertVerificationError as error:
            plain.close()
            raise NotItsCertificate(
                f"{self.url} has another certificate than the one that is trusted: "
                f"{error.verify_message}",
                "ask an administrator for the connect file of today",
            ) from None
        except OSError as error:
            plain.close()
            raise ServerUnreachable(self.url, error) from None

    def _trusting(self) -> SSLContext:
        import ssl

        if self._context is None:
            try:
                self._context = ssl.create_default_context(cadata=self._certificate or None)
            except (ssl.SSLError, ValueError) as error:
                raise ConfigError(
                    f"the certificate of {self.url} cannot be read: {error}"
                ) from None
            if self._certificate:
                # Also one that is nobody's authority: it is trusted itself.
                self._context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return self._context

    def call(self, method: str, target: str, body: Any = None, *, repeat: bool = False) -> Any:
        self._complete(target, body)
        return super().call(method, target, body, repeat=repeat)

    def once(self, target: str, body: Any, key: str) -> Any:
        self._complete(target, body)
        return super().once(target, body, key)

    def frames(
        self,
        method: str,
        target: str,
        body: Any = None,
        key: str = "",
        *,
        deadline: float | None = None,
    ) -> Iterator[tuple[dict[str, Any], bytes]]:
        self._complete(target, body)
        return super().frames(method, target, body, key, deadline=deadline)

    def _complete(self, target: str, body: Any) -> None:
        if self.prepare is not None and target in SUBMITTING and isinstance(body, dict):
            self.prepare(self, body)

    def upload(
        self, target: str, frames: Callable[[], Iterable[tuple[dict[str, Any], bytes]]]
    ) -> Any:
        """Send frames that are made while they are sent; the JSON answer."""
        with self.open("POST", target, FrameUpload(frames)) as reply:
            return json.loads(reply.read_all())

    def made(self, job_id: int) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Every piece of what a job made; where the connection breaks, it goes on at that byte."""
        index = offset = failed = 0
        while True:
            path = f"/v1/jobs/{job_id}/made/contents"
            try:
                for header, data in self.frames(
                    "GET", with_query(path, index=index, offset=offset)
                ):
                    yield header, data
                    failed, offset = 0, header["offset"] + len(data)
                    index = header["index"]
                    if header["last"]:
                        index, offset = index + 1, 0
                return
            except (Gone, ServerUnreachable):
                failed += 1
                if failed == MOST_TRIES:
                    raise

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def running(self) -> dict[str, Any] | None:
        try:
            about: dict[str, Any] = self.call("GET", "/v1/engine")
        except (Unreachable, Gone):
            return None
        return about

    def retire(self) -> bool:
        raise EngineError("a team's server is ended where it runs")

    def check_key_known(self) -> None:
        """A server that was killed over a submission comes back: it is asked again then."""
        import time

        for attempt in range(MOST_TRIES):
            if self.running() is not None:
                return
            time.sleep(min(2.0, 0.1 * 2**attempt))
        raise EngineError(
            f"{self.url} went away before it said whether it accepted the job",
            "look whether it is there once the server is back",
        )

    def _can_go_on(self, error: ApiError) -> bool:
        if error.code == "sign_in" and self.on_sign_in is not None:
            token = self.on_sign_in()
            self.token = token or self.token
            return bool(token)
        return False


def host_and_port(url: str) -> tuple[str, int]:
    """Where a server is; only HTTPS."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        if parts.scheme == "https" and parts.hostname and parts.path in ("", "/"):
            return parts.hostname, parts.port or PORT
    except ValueError:
        pass
    raise ConfigError(f"{url!r} is not the address of a server", "https://HOST:PORT")


def read_connect_file(text: str) -> tuple[str, str]:
    """The address in the first line, and the certificate that follows."""
    url, _, certificate = text.partition("\n")
    host_and_port(url.strip())
    return url.strip().rstrip("/"), certificate.strip() and certificate
