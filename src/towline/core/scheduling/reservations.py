"""Which machines are kept for which waiting jobs (backfill.py says what that means)."""

from collections.abc import Callable

from towline.core.machines.host_state import HostState
from towline.core.machines.machine_index import MachineIndex
from towline.core.scheduling.backfill import Reservation
from towline.core.scheduling.bucket import Bucket

#: Machines are kept for one job of a cluster, and for one more per so many machines of it.
MACHINES_PER_HEAD = 15
MOST_KEPT = 16


class Reservations:
    """All reservations, by cluster and by machine; a machine is kept for one job at most."""

    def __init__(self, machines: MachineIndex) -> None:
        self.machines = machines
        #: cluster -> what is kept for the jobs that are next there, in the order it was.
        self.heads: dict[str, list[Reservation]] = {}
        #: machine -> the reservation that keeps it.
        self.by_host: dict[str, Reservation] = {}
        #: cluster -> `changes.potential` when all who wait there were asked what to keep for them.
        self.walked: dict[str, int] = {}
        #: In a team: whether a job's owner comes so much sooner that nothing is kept from it.
        self.outranks: Callable[[Bucket, Bucket], bool] | None = None
        self._most: dict[str, int] = {}
        self._most_at = -1

    def on(self, host: HostState) -> Reservation | None:
        return self.by_host.get(host.name)

    def of(self, bucket: Bucket) -> list[Reservation]:
        """What is kept for the first jobs of a bucket, in their order."""
        return [head for head in self.heads.get(bucket.cluster, ()) if head.bucket is bucket]

    def last_of(self, bucket: Bucket) -> Reservation | None:
        mine = self.of(bucket)
        return mine[-1] if mine else None

    def most(self, cluster: str) -> int:
        """For how many jobs of a cluster machines are kept at the same time."""
        if self._most_at != self.machines.changes.potential:
            self._most.clear()
            self._most_at = self.machines.changes.potential
        if cluster not in self._most:
            families = self.machines.all_families()
            machines = sum(len(family.hosts) for family in families if cluster in family.clusters)
            self._most[cluster] = min(1 + machines // MACHINES_PER_HEAD, MOST_KEPT)
        return self._most[cluster]

    def shadow(
        self, host: HostState, bucket: Bucket, limit_s: float, now: float
    ) -> HostState | None:
        """The machine as its head will find it, if a job of a bucket must fit beside that one."""
        head = self.by_host.get(host.name)
        if head is None or not head.binds(bucket, limit_s, now):
            return None
        outranked = self.outranks is not None and self.outranks(bucket, head.bucket)
        return None if outranked else head.shadows[host.name]

    def keep(self, head: Reservation) -> None:
        self.heads.setdefault(head.bucket.cluster, []).append(head)
        for name in head.shadows:
            self.by_host[name] = head

    def let_go(self, head: Reservation) -> None:
        """Drop a reservation; others may try the machines it kept."""
        cluster = head.bucket.cluster
        self.heads[cluster].remove(head)
        if not self.heads[cluster]:
            del self.heads[cluster]
        self.machines.changes.potential += 1
        for host in head.hosts():
            del self.by_host[host.name]
            self.machines.ease(host)
