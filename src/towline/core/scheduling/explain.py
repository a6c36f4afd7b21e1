"""Why a job waits: its place in the queue, and for each machine the reason, in words."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from towline.core.machines.demand import Demand
from towline.core.machines.host_state import GpuState, HostState
from towline.core.machines.machine_index import MachineIndex
from towline.core.scheduling.bucket import Bucket
from towline.core.scheduling.placement import Lacking, Search, bare_host
from towline.core.scheduling.reservations import MOST_KEPT, Reservations
from towline.model.machine import Aside
from towline.model.names import shown_cluster
from towline.model.units import format_duration

if TYPE_CHECKING:
    from towline.core.scheduling.scheduler import Scheduler

#: Machines a job is explained on, and looked at for the closest one.
MOST_MACHINES = 50
MOST_CLOSEST = 500
#: Jobs that are named one by one.
MOST_NAMED = 3


class Reason(Struct, frozen=True):
    """Machines with the same reason not to take a job now."""

    machines: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{', '.join(self.machines)}: {self.text}"


class Explanation(Struct, frozen=True):
    """Why a job waits."""

    id: int
    #: One sentence for all of it.
    text: str
    #: 1 is next; 0: it does not wait.
    position: int = 0
    #: Jobs that wait in the same cluster.
    waiting: int = 0
    #: True when machines are kept free for it.
    reserved: bool = False
    reasons: tuple[Reason, ...] = ()
    #: Machines of the cluster that were not looked at.
    more: int = 0

    def lines(self) -> list[str]:
        lines = [self.text, *map(str, self.reasons)]
        return [*lines, f"and {self.more} more machines"] if self.more else lines


def explain_waiting(scheduler: "Scheduler", job_id: int, now: float) -> Explanation:
    bucket = scheduler.queue.waiting.get(job_id)
    if behind := scheduler.series.behind(job_id):
        where = scheduler.running[job_id].placement[0].machine
        return Explanation(job_id, f"it is next on {where}, and starts as soon as {one_of(behind)}")
    if capped := scheduler.caps.spare_in(job_id):
        return Explanation(job_id, f"{capped.most} of its batch run at a time")
    if bucket is None:
        running = job_id in scheduler.running
        return Explanation(job_id, "it has its machines" if running else "it does not wait")
    penalty = scheduler.shares.penalty_s
    position = 1 + scheduler.queue.before(bucket, job_id, lambda owner: penalty(owner, now))
    waiting = scheduler.queue.count_in(bucket.cluster)
    ahead = islice((job for job in bucket.ids[bucket.start :] if job not in bucket.gone), MOST_KEPT)
    head = dict(zip(ahead, scheduler.reservations.of(bucket), strict=False)).get(job_id)
    reserved = head is not None
    reasons = reasons_for(scheduler, bucket, now)
    more = count_machines(scheduler.machines, bucket.cluster) - sum(
        len(r.machines) for r in reasons
    )
    cluster = shown_cluster(bucket.cluster)
    text = f"number {position} of {waiting} that wait in {cluster}"
    if reserved:
        assert head is not None
        names = ", ".join(host.name for host in head.hosts())
        text += f"; it is next, and {names} is kept free for it"
    elif not reasons:
        text += f"; no machine of {cluster} is known yet"
    return Explanation(job_id, text, position, waiting, reserved, reasons, more)


def one_of(behind: list[int]) -> str:
    *others, last = map(str, behind[:MOST_NAMED])
    names = f"{', '.join(others)} or {last}" if others else last
    return f"job {names}{' or another one' if len(behind) > MOST_NAMED else ''} has ended"


def why_not_now(scheduler: "Scheduler", bucket: Bucket, now: float) -> str:
    """Why a job that is not submitted yet would wait."""
    reasons = reasons_for(scheduler, bucket, now)
    if not reasons:
        return f"it would wait: no machine of {shown_cluster(bucket.cluster)} is known yet"
    return "it would wait: " + "; ".join(map(str, reasons))


def reasons_for(scheduler: "Scheduler", bucket: Bucket, now: float) -> tuple[Reason, ...]:
    """The reason per machine, machines with the same one together."""
    search = scheduler.search(bucket, now)
    grouped: dict[str, list[str]] = {}
    for host in islice(machines_in(scheduler.machines, bucket.cluster), MOST_MACHINES):
        text = reason(host, bucket, search, scheduler.reservations)
        grouped.setdefault(text, []).append(host.name)
    return tuple(Reason(tuple(names), text) for text, names in grouped.items())


def machines_in(machines: MachineIndex, cluster: str) -> Iterator[HostState]:
    for family in machines.all_families():
        if cluster in family.clusters:
            yield from family.hosts.values()


def count_machines(machines: MachineIndex, cluster: str) -> int:
    return sum(
        len(family.hosts) for family in machines.all_families() if cluster in family.clusters
    )


def reason(host: HostState, bucket: Bucket, search: Search, reservations: Reservations) -> str:
    """Why a machine does not take a job now."""
    assert host.family is not None
    if not host.up:
        return "does not answer"
    if not host.family.allows(bucket.cluster, bucket.owner):
        return f"is only for {', '.join(host.family.owners)}"
    if host.aside is not None:
        return why_aside(host.aside)
    if host.machine is not None and host.machine.closed:
        return host.machine.closed
    if host.name in search.barred:
        return "is avoided, because an earlier attempt failed there"
    demands = [demand for _, demand in bucket.groups]
    for demand in demands:
        text = lack(host, demand) or shortage(host, demand)
        if text:
            return text
    for demand in demands:
        head = reservations.on(host)
        if head is not None and search.choose(host, demand) is None:
            return f"kept free for job {head.first_job()}, which is next"
    if host.paced:
        assert host.machine is not None
        every = number(host.machine.stagger_s, 2)
        return f"starts are paced, one every {every} s (the setting `stagger`)"
    if bucket.single:
        return "has room; jobs before it come first"
    return "has room, but not for all of its processes at once"


def why_aside(aside: Aside) -> str:
    """Why nothing starts on a machine where jobs failed at once."""
    failed = f"the last {aside.failed} jobs failed within seconds there"
    failed += ", while such jobs do well elsewhere"
    if not aside.is_tried:
        return f"is set aside for {format_duration(aside.for_s)}: {failed}"
    who = f"job {aside.tried_by}" if aside.tried_by else "one job"
    return f"was set aside ({failed}), and {who} tries it now"


def lack(host: HostState, demand: Demand) -> str:
    """All that a machine could not give even if nobody used it; empty if nothing."""
    bare = bare_host(host)
    if bare.choose(demand) is not None:
        return ""
    assert host.machine is not None
    found = []
    if bare.cpu_free < demand.cpu:
        found.append(f"has {cpus(host.machine.cpus)}, {asked(exact(demand.cpu / 1000))}")
    if bare.mem_free < demand.mem:
        found.append(
            f"has {at_most(bare.mem_free)} of memory, {at_least(demand.mem)} are asked for"
        )
    if demand.gpus and bare.choose_gpus(demand) is None:
        found.append(lack_of_gpus(bare, demand))
    return "; ".join(found)


def lack_of_gpus(bare: HostState, demand: Demand) -> str:
    assert bare.family is not None
    has = inventory(bare)
    for count, name in demand.gpus:
        kinds = bare.family.named(name)
        named = [gpu for gpu in bare.gpus if gpu.kind in kinds]
        if not named:
            lacks = name if name and has else f"GPU, and {name} is asked for" if name else "GPU"
            return f"has no {lacks}" + (f" (it has {has})" if has else "")
        if len(named) < count:
            what = name or ("GPU" if len(named) == 1 else "GPUs")
            return f"has {len(named)} {what}, {count} are asked for"
        if sum(1 for gpu in named if gpu.takes(demand)) < count:
            most = max(gpu.total for gpu in named)
            return f"its GPUs have up to {at_most(most)}, {at_least(demand.gpu_mem)} are asked for"
    return f"has {has}, not enough for all the GPUs asked for"


def shortage(host: HostState, demand: Demand) -> str:
    """All that is in use on a machine and would be enough when free; empty if nothing is."""
    assert host.machine is not None
    if host.held:
        return f"{jobs(host)} has the whole machine"
    if demand.exclusive and host.claimed_by and not host.processes:
        return f"the whole machine is asked for, and jobs of {host.claimed_by} run there"
    if demand.exclusive and host.processes:
        return f"the whole machine is asked for, and it is used by {jobs(host)}"
    found = []
    if demand.gpus and host.choose_gpus(demand) is None:
        found.append(shortage_of_gpus(host, demand))
    if host.mem_free < demand.mem:
        used = others(size(host.machine.foreign_mem_mb), host.machine.foreign_mem_mb > 0)
        free = at_most(host.mem_free)
        found.append(f"{free} of memory are free, {at_least(demand.mem)} are asked for{used}")
    if host.cpu_free < demand.cpu:
        foreign = host.machine.foreign_cpus
        used = others(number(foreign), foreign > 0)
        # Rounded down, or as many would seem to be free as are asked for.
        free = cpus(max(0, host.cpu_free) // 100 / 10)
        verb = "is" if free == "1 CPU" else "are"
        found.append(f"{free} {verb} free, {asked(exact(demand.cpu / 1000))}{used}")
    return "; ".join(found)


def shortage_of_gpus(host: HostState, demand: Demand) -> str:
    assert host.family is not None
    kinds: set[int] = set()
    for _, name in demand.gpus:
        kinds |= host.family.named(name)
    matching = [gpu for gpu in host.gpus if gpu.kind in kinds]
    names = ", ".join(dict.fromkeys(name for _, name in demand.gpus if name))
    many = len(matching) != 1
    text = f"{len(matching)} GPU{'s' if many else ''}"
    if names:
        text += f" match{'' if many else 'es'} {names}"
    uses: dict[str, int] = {}
    for gpu in matching:
        if not gpu.takes(demand):
            use = used_by(host, gpu)
            uses[use] = uses.get(use, 0) + 1
    parts = [text]
    for use, count in uses.items():
        verb = "" if len(parts) > 1 else "is used " if count == 1 else "are used "
        parts.append(f"{count} {verb}{use}")
    if not demand.reserved:
        parts.append(share_of(demand))
    return ", ".join(parts)


def used_by(host: HostState, gpu: GpuState) -> str:
    assert host.machine is not None
    ours = [
        f"job {job}"
        for job, processes in host.jobs.items()
        if any(gpu.index in gpus for _, gpus in processes)
    ]
    if ours:
        return "by " + " and ".join(ours)
    foreign = next(seen for seen in host.machine.gpus if seen.index == gpu.index)
    if foreign.claimed_by:
        return f"by jobs of {foreign.claimed_by}"
    if foreign.foreign_mem_mb:
        return f"by other programs ({size(foreign.foreign_mem_mb)})"
    return f"by other programs ({foreign.foreign_util:.0%})"


def share_of(demand: Demand) -> str:
    """What a process asks of a GPU it shares."""
    parts = []
    if demand.gpu_mem:
        parts.append(at_least(demand.gpu_mem))
    if demand.gpu_util:
        parts.append(f"{demand.gpu_util / 1000:.0%} of the time")
    if not parts:
        return "and a share of a GPU is asked for"
    return f"and {' and '.join(parts)} of a GPU are asked for"


def closest(machines: MachineIndex, cluster: str, owner: str, lacking: Lacking) -> str:
    """A sentence about the machine that comes closest to a request nobody can satisfy."""
    hosts = [
        host
        for host in islice(machines_in(machines, cluster), MOST_CLOSEST)
        if host.family is not None and host.family.allows(cluster, owner)
    ]
    called = shown_cluster(cluster)
    if not hosts:
        return f"no machine of {called} may be used by {owner or 'you'}"
    host = min(hosts, key=lambda host: distance(host, lacking.demand))
    text = lack(host, lacking.demand)
    if text:
        return f"no machine of {called} can ever take it; the closest is {host.name}: it {text}"
    count = lacking.count
    return (
        f"the machines of {called} can never take all of its processes at once: even when nobody"
        f" uses them, {count} process{'es find' if count > 1 else ' finds'} no place"
    )


def distance(host: HostState, demand: Demand) -> tuple[int, float]:
    """How far a machine is from ever taking a process: things lacking, then how much."""
    bare = bare_host(host)
    if bare.choose(demand) is not None:
        return (0, 0.0)
    assert bare.family is not None
    short = [
        max(0.0, 1 - bare.cpu_free / demand.cpu) if demand.cpu else 0.0,
        max(0.0, 1 - bare.mem_free / demand.mem) if demand.mem else 0.0,
    ]
    for count, name in demand.gpus:
        kinds = bare.family.named(name)
        named = sum(1 for gpu in bare.gpus if gpu.kind in kinds)
        taking = sum(1 for gpu in bare.gpus if gpu.kind in kinds and gpu.takes(demand))
        short += [max(0.0, 1 - named / count), max(0.0, 1 - taking / count)]
    return (sum(1 for part in short if part), sum(short))


def inventory(host: HostState) -> str:
    """The GPUs of a machine in words."""
    assert host.machine is not None
    counts: dict[str, int] = {}
    for gpu in host.machine.gpus:
        model = gpu.model.removeprefix("NVIDIA ")
        counts[model] = counts.get(model, 0) + 1
    return ", ".join(f"{count} {model}" for model, count in counts.items())


def jobs(host: HostState) -> str:
    names = [f"job {job}" for job in islice(host.jobs, 3)]
    more = len(host.jobs) - len(names)
    return " and ".join(names) + (f" and {more} more" if more else "")


def others(amount: str, any_used: bool) -> str:
    return f" ({amount} used by other programs)" if any_used else ""


def size(mb: int) -> str:
    return f"{mb / 1024:.1f} GB" if mb >= 1024 else f"{max(0, mb)} MB"


def at_most(mb: int) -> str:
    """An amount of memory that is free: rounded down, so that it is never what is asked for."""
    return f"{mb * 10 // 1024 / 10:.1f} GB" if mb >= 1024 else f"{max(0, mb)} MB"


def at_least(mb: int) -> str:
    """An amount of memory that is asked for: rounded up, so that it is never what is free."""
    return f"{-(-mb * 10 // 1024) / 10:.1f} GB" if mb >= 1024 else f"{mb} MB"


def cpus(count: float) -> str:
    shown = number(count)
    return f"{shown} CPU" if shown == "1" else f"{shown} CPUs"


def asked(amount: str) -> str:
    return f"{amount} {'is' if amount == '1' else 'are'} asked for"


def exact(value: float) -> str:
    return number(value, 3)


def number(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}".rstrip("0").removesuffix(".")
