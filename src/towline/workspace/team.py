"""The submitters of a team's server: they are elsewhere, and their folders with them.

What a job runs in was sent before, as contents by their hashes; what it makes is kept here, until
whoever submitted it takes it home.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from towline.config.settings import CleanupSettings
from towline.errors import UsageError
from towline.model.job import Job, JobSpec
from towline.model.results import ResultsState, at_home
from towline.snapshot.blobs import BlobStore
from towline.snapshot.syncing import sync_file_systems
from towline.workspace.ask import JobAsk, named_after, spec_from
from towline.workspace.base import (
    Frozen,
    Item,
    Made,
    Measured,
    Offer,
    PlacedResults,
    Places,
    Submission,
)
from towline.workspace.brought import decoded
from towline.workspace.delivery import FolderDelivery
from towline.workspace.placing import Placer
from towline.workspace.receiver import FolderReceiver

#: What a job on the server's own machine is told of the server's environment: no secret is in it.
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")
#: Where results are, as members are told.
ON_SERVER = "on the server"
_PIECE = 256 * 1024
#: Whether somebody has sent this snapshot, and all of it is still here.
Sent = Callable[[str, str], bool]


class TeamWorkspace:
    """What a team's server knows of its submitters (`Submitters` of base.py)."""

    def __init__(
        self,
        places: Callable[[], Places],
        blobs: BlobStore,
        results: str,
        sent: Sent,
        autoshared: Callable[[str], tuple[str, ...]],
    ) -> None:
        self.receiver = TeamReceiver(results, blobs)
        self._places = places
        self._sent = sent
        self._autoshared = autoshared

    def places(self, folder: str | None) -> Places:
        """The server's own clusters; what folders there are is not its business."""
        return self._places()

    def drafts(self, asks: Iterable[JobAsk], owner: str, made: Made) -> Iterator["SentDraft"]:
        places, environ = self._places(), _environment()
        for ask in asks:
            if ask.in_place:
                raise UsageError("--in-place runs in a folder of one's own machine")
            spec = spec_from(ask, places, owner)
            groups = () if ask.private else self._autoshared(owner)
            yield SentDraft(ask, replace(spec, groups=groups), places, environ, self._sent)

    def cleanup(self) -> CleanupSettings:
        return self._places().config.cleanup


class SentDraft:
    """What was asked from elsewhere, and whose folder is frozen already (`Draft` of base.py)."""

    def __init__(
        self,
        ask: JobAsk,
        spec: JobSpec,
        places: Places,
        environ: Mapping[str, str],
        sent: Sent,
    ) -> None:
        self.spec = spec
        self.places = places
        self.environ = environ
        self._ask = ask
        self._frozen = ask.frozen or Frozen()
        self._sent = sent
        self.tree = self._frozen.snapshot

    def __repr__(self) -> str:
        return f"SentDraft({self.spec!r})"

    async def rehearse(self) -> str:
        return self._frozen.snapshot

    async def measure(self) -> Measured:
        frozen = self._frozen
        return Measured(frozen.files, frozen.bytes, list(frozen.large), frozen.subfolder)

    async def freeze(self, offer: Offer | None) -> Frozen:
        snapshot = self._frozen.snapshot
        if snapshot and not self._sent(self.spec.owner, snapshot):
            raise UsageError(
                f"the snapshot {snapshot[:12]} is not here (any more)", "send its contents again"
            )
        return self._frozen

    def submission(self, frozen: Frozen) -> Submission:
        ask = self._ask
        # Drafts that run in the same contents may run in different folders of them.
        return Submission(self.spec, self._frozen, self.environ, ask.continued, named_after(ask))


class TeamReceiver(FolderReceiver):
    """Results stay on the server, each job's in a folder of its own, whatever it is called."""

    def __init__(self, folder: str, blobs: BlobStore) -> None:
        super().__init__(folder, blobs)
        self._kept_in = folder

    def deliver(self, job: Job, memory: bytes | None) -> FolderDelivery:
        assert job.attempt is not None
        placer = Placer(self._folder(job), decoded(memory), job.attempt.number, job.spec.umask)
        left_over = self._parts.get(job.id, [])
        return _TeamDelivery(placer, self._blobs, self._writers, self._settling, left_over)

    def put_printed(
        self, job: Job, printed: tuple[bytes, bytes]
    ) -> tuple[ResultsState, bytes] | None:
        home = super().put_printed(job, printed)
        # Where it is on the server is nobody's business.
        return home and (at_home(ON_SERVER), home[1])

    def settle_soon(self, job: Job) -> None:
        self._settling.soon([self._output(job, stream) for stream in ("out", "err")])

    def has_output(self, job: Job, streams: Sequence[str]) -> bool:
        return all(os.path.isfile(self._output(job, stream)) for stream in streams)

    def read_output(self, job: Job, stream: str, offset: int) -> bytes:
        with open(self._output(job, stream), "rb") as file:
            file.seek(offset)
            return file.read(_PIECE)

    def _output(self, job: Job, stream: str) -> str:
        return f"{self._folder(job)}.{stream}"

    async def sync(self, jobs: Iterable[Job]) -> None:
        await asyncio.to_thread(sync_file_systems, [self._kept_in])

    def _folder(self, job: Job) -> str:
        return os.path.join(self._kept_in, str(job.id))


class _TeamDelivery(FolderDelivery):
    """Says of all that it placed that it is on the server, and not where."""

    async def put_output(self, item: Item, content: bytes) -> str:
        return await super().put_output(item, content) and ON_SERVER

    async def write(self, item: Item, offset: int, content: bytes, last: bool) -> str:
        return await super().write(item, offset, content, last) and ON_SERVER

    async def finish(self, is_all: bool) -> PlacedResults:
        placed = await super().finish(is_all)
        placed.folder = ON_SERVER
        return placed


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
