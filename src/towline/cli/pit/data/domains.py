"""What has data, as one tree of folders and files each: jobs, and the domains of a team."""

from __future__ import annotations

from towline.cli.pit.data.tree import FILE, FOLDER, JobTree, split
from towline.cli.pit.session import PitSession
from towline.cli.pit.typed.names import with_data
from towline.client.data import DataFolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class DomainTree:
    """What can be listed and read of a domain, as of the directory of a job."""

    def __init__(self, data: DataFolder) -> None:
        self.data = data
        self.name = data.domain.replace(":", "-")
        #: What is shared is changed on the head node only.
        self.writable = data.domain != "shared"

    def stat(self, path: str) -> dict[str, Any]:
        return self.data.stat("/".join(split(path)))

    def entries(self, path: str) -> list[dict[str, Any]]:
        """What is in a folder; links are left out."""
        found = self.data.entries("/".join(split(path)))
        return [one for one in found if one["kind"] in (FOLDER, FILE)]

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> Iterator[bytes]:
        return self.data.read("/".join(split(path)), offset, limit)


def tree_of(typed: str) -> JobTree | DomainTree:
    """What is meant by `190`, `job:190`, `home`, `shared`, `group:staff` or `user:anna`."""
    which = with_data(typed)
    session = PitSession()
    if which.kind == "job":
        return JobTree(session, int(which.name))
    return DomainTree(DataFolder(session, typed))
