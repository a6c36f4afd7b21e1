"""Files of jobs, versions of folders and the trust in them, as programs see them."""

from typing import Any, TypedDict


class FolderListing(TypedDict):
    entries: list[Any]
    more: bool


class Walk(TypedDict):
    files: list[Any]
    more: bool


class FileStat(TypedDict):
    name: str
    kind: str
    size: int
    mtime: float
    mode: int


class Written(TypedDict):
    bytes: int


class FetchedView(TypedDict):
    """What came home of a job; `conflicts` names what a person has here, and where the newer is.

    `missing` was asked for and not made; `made` names the first of what was. `not_collected` is
    what the job wrote outside of its folder and could not be copied, and why not, in words: the
    first of `uncollected`.
    """

    folder: str
    files: int
    bytes: int
    printed: str
    conflicts: list[list[str]]
    refused: list[str]
    not_collected: list[list[str]]
    uncollected: int
    in_the_way: list[str]
    missing: list[str]
    made: list[str]


class ResultsOnTheWay(TypedDict):
    """Bytes of a job's results that have come, and of how many; both 0 while none are coming."""

    done: int
    total: int


class Diff(TypedDict):
    diff: str


class CheckedOut(TypedDict):
    files: int


class SnapshotRecord(TypedDict):
    branch: str
    commit: str
    at: float
    title: str


class SnapshotRecords(TypedDict):
    snapshots: list[SnapshotRecord]


class Forgotten(TypedDict):
    forgotten: list[str]


class ProjectView(TypedDict):
    """A project's own file: what it wants, and whether the user trusts it."""

    file: str
    digest: str
    settings: Any
    trusted: bool


class TrustView(TypedDict):
    project: ProjectView | None
    trusted: list[dict[str, Any]]


class TrustedNow(TypedDict):
    project: ProjectView


class Revoked(TypedDict):
    file: str
