"""`@towline.remote`: every call of a function is a job of its own, which outlives the program."""

from __future__ import annotations

import functools
import hmac
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from towline.client.job import Job
from towline.client.session import Session
from towline.client.submission import this_folder
from towline.errors import HostError, NotFound, TowlineError, UsageError
from towline.functions.executor import packed_call
from towline.functions.failures import RemoteError, failure
from towline.functions.payload import PLACE, PROGRAM, payload, program_for_calls
from towline.functions.remote.wire import VALUE, signature

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


_SIGNED = len(signature(b"", b""))
#: Where the keys of calls are kept: what comes back is checked with them.
_KEYS = "calls"


class FunctionJob(Job):
    """A job that calls one function; `result()` is what that returned, also much later."""

    def result(self, timeout: float | None = None) -> Any:
        """Wait until it has ended; the value of the call, or what it raised is raised here."""
        place = self._place()
        outcome = self.wait(timeout)
        try:
            data = self._read(f"{place}/result")
        except TowlineError as error:
            raise RemoteError(
                f"{outcome}, and left no result", f"what it printed: tow log {self.id}"
            ) from error
        name = place.removeprefix(f"{PLACE}/")
        signed, kind, payload = data[:_SIGNED], data[_SIGNED : _SIGNED + 1], data[_SIGNED + 1 :]
        key = _key_file(self.session, name).read_bytes()
        if not hmac.compare_digest(signed, signature(key, kind, payload)):
            raise RemoteError(f"what came home for job {self.id} is not what it made")
        if kind == VALUE:
            return pickle.loads(payload)
        raise failure(payload)

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        return asyncio.to_thread(self.result).__await__()

    def _place(self) -> str:
        """Where in the job's folder its call is."""
        for word in self.facts["command"]:
            if word.startswith(f"{PLACE}/") and word.endswith(f"/{PROGRAM}"):
                place: str = word.removesuffix(f"/{PROGRAM}")
                if _key_file(self.session, place.removeprefix(f"{PLACE}/")).exists():
                    return place
        raise UsageError(
            f"job {self.id} is not the call of a function, so it has no result",
            "job.results() brings home the files that it made",
        )

    def _read(self, path: str) -> bytes:
        try:
            return self.read(path)
        except (NotFound, HostError):
            # It was cleaned up over there, or is away; what it made came home.
            folder = Path(self.facts["folder"]) / "job_results" / str(self.id)
            try:
                return (folder / path).read_bytes()
            except OSError:
                pass
            raise


class RemoteFunction:
    """A function that can be submitted; called as it is, it runs here."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._options = options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def options(self, **options: Any) -> RemoteFunction:
        """The same function with other options."""
        return RemoteFunction(self.function, {**self._options, **options})

    def submit(self, *args: Any, **kwargs: Any) -> FunctionJob:
        """One call as a job; `result()` of it is the value."""
        options = dict(self._options)
        session = options.pop("session", None) or Session()
        folder = Path(options.pop("folder", None) or this_folder()).absolute()
        python = options.pop("python", "")
        packed = packed_call((self.function, args, kwargs))
        options.setdefault("title", getattr(self.function, "__name__", "call"))
        with payload(folder, {"call": packed}, program_for_calls()) as sent:
            # Before the job: what it makes may come home when this program is gone.
            _keep_key(session, sent.name, sent.key)
            command = sent.command("towline_remote.single", python)
            job = session.submit(command, folder=folder, **sent.added_to(options))
        return FunctionJob(session, job.facts)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return RemoteFunction(functools.partial(self.function, instance), self._options)

    def __reduce__(self) -> Any:
        # A function that calls itself: over there, where Towline may not be, it is called as it is.
        return functools.partial, (self.function,)


def remote(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a function one that can be submitted: `@towline.remote` or `@towline.remote(gpus=1)`."""
    if function is None:
        return lambda decorated: RemoteFunction(decorated, options)
    return RemoteFunction(function, options)


def job(name: int | str) -> FunctionJob:
    """The job of this number or name; one that called a function has its `result()`."""
    session = Session()
    return FunctionJob(session, session.job(name).facts)


def _keep_key(session: Session, name: str, key: bytes) -> None:
    path = _key_file(session, name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
        file.write(key)


def _key_file(session: Session, name: str) -> Path:
    return Path(session.paths.home) / _KEYS / os.path.basename(name)
