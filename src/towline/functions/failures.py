"""What a call raised over there, raised here: the same exception, with the traceback it had."""

from __future__ import annotations

import pickle
from concurrent.futures import BrokenExecutor

from towline.errors import TowlineError


class RemoteError(TowlineError):
    """An exception of a call that cannot be made again here: its class, and what it said."""

    code = "remote"


class WorkerLost(TowlineError, BrokenExecutor):
    """The worker went away after the call may have begun: whether it was done is not known."""

    code = "worker_lost"


class NoWorkers(TowlineError, BrokenExecutor):
    """The executor has no worker any more, and will get none."""

    code = "no_workers"


class RemoteTraceback(Exception):
    """Where it was raised: the cause of what is raised here."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words

    def __str__(self) -> str:
        return f'\n"""\n{self.words}"""'


def failure(payload: bytes) -> BaseException:
    """The exception that a call raised; its payload was checked to be from its worker."""
    whole, name, text, words = pickle.loads(payload)
    error: object = None
    try:
        error = pickle.loads(whole) if whole is not None else None
    except Exception:
        pass  # Its class is not here: what it said is.
    if not isinstance(error, BaseException):
        error = RemoteError(f"{name}: {text}")
    error.__cause__ = RemoteTraceback(words)
    return error
