"""What the configuration says about one machine."""

from towline.hosts.base import Host
from towline.probes.machine import ConfiguredLimits


class Membership:
    """One machine, in whatever clusters."""

    def __init__(
        self, host: Host, root: str, limits: ConfiguredLimits, lost_after_s: float
    ) -> None:
        self.host = host
        self.root = root
        self.limits = limits
        self.lost_after_s = lost_after_s
        self.owners: tuple[str, ...] = ()
        self.aliases: tuple[tuple[str, str], ...] = ()
        self.clusters: set[str] = set()
        #: Jobs of an earlier Engine may run there: it keeps its name.
        self.kept = False

    @property
    def target(self) -> str:
        """Where it is, which tells it from all others: what is dialled, and the folder there."""
        return f"{self.host.place} {self.root}"
