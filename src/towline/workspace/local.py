"""The workspace of this machine's own Engine: it runs in the same process."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from towline.config.load import Configuration
from towline.config.settings import CleanupSettings
from towline.snapshot.blobs import BlobStore
from towline.workspace.ask import JobAsk, checked_folder, spec_from
from towline.workspace.base import Made, Places
from towline.workspace.draft import FolderDraft, Freezer
from towline.workspace.receiver import FolderReceiver
from towline.workspace.versions import Versions


class LocalWorkspace:
    """Folders, configuration and git of the user whose Engine this is."""

    def __init__(self, configuration: Configuration, blobs: BlobStore, spare_folder: str) -> None:
        self.configuration = configuration
        self.receiver = FolderReceiver(spare_folder, blobs)
        self._freezer = Freezer(blobs)
        self.versions = Versions(configuration, self._freezer)

    def places(self, folder: str | None) -> Places:
        """The clusters as they are configured in a folder."""
        config, sources = self.configuration.with_sources(folder)
        return Places(config, sources, self.configuration.user_file)

    def drafts(self, asks: Iterable[JobAsk], owner: str, made: Made) -> Iterator[FolderDraft]:
        """What is asked, checked as far as that is possible here; nothing is read yet."""
        known: dict[tuple[str, str | None], Places] = {}
        for ask in asks:
            where = (ask.cwd, ask.cluster)
            if where not in known:
                known[where] = self._with_made(ask, made)
            places = known[where]
            yield FolderDraft(ask, spec_from(ask, places, owner), places, self._freezer)

    def _with_made(self, ask: JobAsk, made: Made) -> Places:
        places = self.places(checked_folder(ask.cwd))
        cluster = made(ask.cluster) if ask.cluster else None
        if cluster is None or not ask.cluster:
            return places
        clusters = {**places.config.clusters, ask.cluster: cluster}
        return replace(places, config=replace(places.config, clusters=clusters))

    def cleanup(self) -> CleanupSettings:
        return self.configuration.in_folder(None).cleanup
