"""What jobs write for TensorBoard, kept here as it grows there."""

from __future__ import annotations

import os
import re

from towline.cli.pulling import local_place
from towline.cli.terminal import note
from towline.cli.terminal.wording import FINAL
from towline.client.session import ApiError
from towline.client.transport import with_query
from towline.errors import TowlineError
from towline.model.odd_text import original

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.client.session import Session

#: TensorBoard itself tells its files by this.
MARK = "tfevents"


class EventFiles:
    """Those of one job. They only ever grow, so only what is new travels."""

    def __init__(self, session: Session, job: int, logdir: str, root: str) -> None:
        self.session = session
        self.job = job
        self.logdir = logdir
        view = session.call("GET", f"/v1/jobs/{job}")
        self.folder = os.path.join(root, run_name(view))
        self.subfolder = str(view.get("subfolder") or "")
        #: True once nothing more can come.
        self.complete = self._is_home(view)
        self._complaint = ""

    def _is_home(self, view: dict[str, Any]) -> bool:
        """Show the results themselves where they have come home."""
        results = original((view.get("home") or {}).get("path") or "")
        home = os.path.join(results, self.logdir) if results else ""
        if view["state"] not in FINAL or not home or not os.path.isdir(home):
            os.mkdir(self.folder, 0o700)
            return False
        os.symlink(home, self.folder)
        return True

    def own_place(self) -> str:
        """Where the job itself worked, of what is kept here."""
        inside = os.path.join(self.folder, self.subfolder)
        return inside if os.path.islink(self.folder) and os.path.isdir(inside) else self.folder

    def fetch(self) -> None:
        """Bring what was written since the last time; a machine that is away is waited for."""
        if self.complete:
            return
        try:
            ended = self.session.call("GET", f"/v1/jobs/{self.job}")["state"] in FINAL
            self._fetch_new()
            self.complete, self._complaint = ended, ""
        except ApiError as error:
            # It has not started, or has not made its folder yet.
            if error.code != "not_found":
                self._complain(error.text)
        except TowlineError as error:
            self._complain(error.text)

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            note(f"job {self.job}: {text}; showing what came so far")

    def _fetch_new(self) -> None:
        target = with_query(f"/v1/jobs/{self.job}/walk", path=self.logdir)
        for entry in self.session.call("GET", target)["files"]:
            if entry["kind"] == "file" and MARK in os.path.basename(entry["name"]):
                self._fetch_one(entry["name"], entry["size"])

    def _fetch_one(self, name: str, size: int) -> None:
        place = local_place(self.folder, name)
        have = os.path.getsize(place) if os.path.exists(place) else -1
        if have == size:
            return
        os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
        # One that became shorter was written anew.
        offset = have if 0 <= have < size else 0
        path = os.path.join(self.logdir, name)
        query = {"path": path, "offset": offset, "limit": size - offset}
        with (
            self.session.open("GET", with_query(f"/v1/jobs/{self.job}/file", **query)) as reply,
            open(place, "ab" if offset else "wb") as sink,
        ):
            while piece := reply.read():
                sink.write(piece)


def run_name(view: dict[str, Any]) -> str:
    """What TensorBoard calls the runs of a job: its number and its title."""
    title = re.sub(r"[^\w.=-]+", "-", str(view["title"])).strip("-.")[:40]
    return f"{view['id']}-{title}" if title else str(view["id"])
