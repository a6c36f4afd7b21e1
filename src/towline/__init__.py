"""Towline: put one word in front of a command, and it runs on whatever compute you have.

For programs: `towline.submit(...)` gives a `Job`, `Executor` and `remote` have functions called on
clusters, and `Session` reaches everything else. They are imported when they are first used, so that
`tow` starts quickly.
"""

from towline.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from towline import errors
    from towline.client.job import Job, submit
    from towline.client.session import Session
    from towline.client.team import server_session
    from towline.functions.calls import job, remote
    from towline.functions.executor import Executor
    from towline.sweeps.report import report

__all__ = [
    "Executor",
    "Job",
    "Session",
    "__version__",
    "errors",
    "job",
    "remote",
    "report",
    "server_session",
    "submit",
]

#: What is offered -> the module that has it.
_OFFERED = {
    "Executor": "towline.functions.executor",
    "Job": "towline.client.job",
    "Session": "towline.client.session",
    "job": "towline.functions.calls",
    "remote": "towline.functions.calls",
    "report": "towline.sweeps.report",
    "server_session": "towline.client.team",
    "submit": "towline.client.job",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "errors":
        return import_module("towline.errors")
    if name not in _OFFERED:
        raise AttributeError(f"module 'towline' has no attribute {name!r}")
    return getattr(import_module(_OFFERED[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
