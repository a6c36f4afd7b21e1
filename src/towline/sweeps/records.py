"""Sweeps as they are written down here: by them `tow sweep` and whoever brings one home know it."""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from towline.client.batches import jobs_of
from towline.sweeps.sweep import Sweep, Try

if TYPE_CHECKING:
    from collections.abc import Iterator

    from towline.client.session import Session

_FOLDER = "sweeps"
#: The last word of the command of a sweep's job: which sweep, and which of its jobs.
_OF_SWEEP = re.compile(r"([0-9a-f]{12})\.([0-9-]+)")


class SweepRecords:
    """One file for each call of a launcher, which only its owner can read: it has a key in it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.folder = Path(session.paths.home) / _FOLDER

    def save(self, sweep: Sweep) -> None:
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._file(sweep.token)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        with open(os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            json.dump(asdict(sweep), file)
        os.replace(part, path)

    def forget(self, sweep: Sweep) -> None:
        self._file(sweep.token).unlink(missing_ok=True)

    def load(self, token: str) -> Sweep | None:
        try:
            told: dict[str, Any] = json.loads(self._file(token).read_text())
            return Sweep(**{**told, "tries": [Try(**tried) for tried in told["tries"]]})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    @contextmanager
    def changing(self, sweep: Sweep) -> Iterator[Sweep]:
        """The sweep as it is written down; what is changed of it is written when this ends."""
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = self.load(sweep.token) or sweep
            yield known
            self.save(known)
        sweep.__dict__.update(vars(known))

    def follow_up(self, leader: str, sweep: Sweep) -> None:
        """The launcher was called again: whoever names the first sees this one, too."""
        if (first := self.load(leader)) is not None:
            with self.changing(first) as known:
                known.followers.append(sweep.token)

    def called(self, name: str) -> list[Sweep]:
        """All calls of the launcher whose batch has this name; none: it is no such sweep."""
        found = jobs_of(self.session, name, limit=1)
        words = [str(word) for job in found["jobs"] for word in job["command"][-1:]]
        match = _OF_SWEEP.fullmatch(words[0]) if words else None
        sweep = self.load(match[1]) if match else None
        if sweep is None:
            return []
        if not sweep.tries[0].batch:
            # Its launcher was killed before it was told the name.
            sweep.tries[0].batch = str(found["batch"]["name"])
        first = (self.load(sweep.leader) if sweep.leader else None) or sweep
        others = [self.load(token) for token in first.followers]
        return [first, *(one for one in others if one is not None and one.name)]

    def _file(self, token: str) -> Path:
        return self.folder / f"{os.path.basename(token)}.json"
