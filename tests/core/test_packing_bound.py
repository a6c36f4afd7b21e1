"""The yardstick of the simulated week is never below what can really be packed."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.packing_bound import (
    NOBODY,
    OTHERS,
    OURS,
    CpuState,
    HostState,
    Sort,
    cpu_bound,
    fill_of,
    fullest,
    gpu_bound,
    whole,
)
from towline.model.grammar import parse_request
from towline.model.request import Need

#: Kind of machine -> memory of its GPUs.
KINDS = {"small": 4_096, "large": 8_192}


def a_sort(request: str, count: int, **allowed: float) -> Sort:
    sort = Sort(parse_request(request).groups[0].need, dict(allowed))
    sort.count = count
    return sort


def idle(kind: str, gpus: int, mem_mb: int = 8192) -> HostState:
    return (kind, ((mem_mb, 1.2, NOBODY, 0.0),) * gpus)


# --- by hand ------------------------------------------------------------------------------------


def test_what_fits_on_one_gpu_is_counted_exactly() -> None:
    halves = frozenset({(3072, 0.5, 0.5)})
    assert fullest(halves, 24_576, 1.2) == 1.0
    assert fullest(halves, 5_000, 1.2) == 0.5
    assert fullest(halves | {(6144, 0.25, 0.25)}, 24_576, 1.2) == 1.0


def test_the_bound_is_no_more_than_there_is_and_no_more_than_is_asked_for() -> None:
    hosts = {idle("small", 1): 3, idle("large", 1, 24_576): 2}
    anywhere = a_sort("[gpu]", 10, small=1.0, large=1.0)
    large = a_sort("[rtx3090]", 10, large=1.0)
    assert gpu_bound([anywhere], hosts, 0.0) == 5
    assert gpu_bound([large], hosts, 0.0) == 2
    assert gpu_bound([large, a_sort("[gpu]", 1, small=1.0, large=1.0)], hosts, 0.0) == 3
    assert gpu_bound([a_sort("[gpu]", 2, small=1.0)], hosts, 1.5) == 3.5


def test_whole_gpus_are_not_expected_where_others_are() -> None:
    hosts = {("m", ((8192, 1.2, OTHERS, 0.0), (8192, 1.2, OURS, 0.0))): 1}
    assert gpu_bound([a_sort("[gpu]", 5, m=1.0)], hosts, 7.0) == 7
    assert gpu_bound([a_sort("[gpumem=1G,reserve]", 5, m=1.0)], hosts, 7.0) == 8


def test_gpus_of_several_machines_are_not_one() -> None:
    fours, ones = a_sort("[4:gpu]", 5, m=4.0), a_sort("[gpu]", 2, m=1.0)
    assert gpu_bound([fours], {idle("m", 3): 2, idle("m", 7): 1}, 0.0) == 4
    assert gpu_bound([fours, ones], {idle("m", 3): 2, idle("m", 7): 1}, 0.0) == 6


def test_cpus_are_bound_by_kind_of_machine_and_by_whole_processes() -> None:
    sorts = [a_sort("[cpus=4]", 100, small=4.0, large=4.0), a_sort("[cpus=64]", 1, large=64.0)]
    hosts: dict[CpuState, int] = {
        ("small", 40.0, 0.0, True): 1,
        ("large", 90.0, 0.0, True): 1,
    }
    assert cpu_bound(sorts, hosts, 3.0) == 40 + 88 + 3
    assert cpu_bound(sorts[1:], hosts, 0.0) == 64


def test_a_machine_for_oneself_is_not_expected_beside_gpu_jobs() -> None:
    hosts: dict[CpuState, int] = {("m", 40.0, 0.0, True): 2, ("m", 40.0, 0.0, False): 3}
    assert cpu_bound([a_sort("[cpus=8,exclusive]", 9, m=8.0)], hosts, 0.0) == 16


# --- against all packings there are ---------------------------------------------------------------


@dataclass
class Gpu:
    mem_mb: int
    util: float
    who: int
    users: int = 0
    alone: bool = False

    def takes(self, need: Need) -> bool:
        if self.alone or (need.gpu_reserved and (self.users or self.who == OURS)):
            return False
        if whole(need):
            return self.who == NOBODY
        return need.gpu_mem_mb <= self.mem_mb and need.gpu_util <= self.util + 1e-9

    def use(self, need: Need, sign: int) -> None:
        self.users += sign
        self.mem_mb -= sign * need.gpu_mem_mb
        self.util -= sign * need.gpu_util
        self.alone = sign > 0 and need.gpu_reserved


def best_packing(todo: list[Sort], hosts: list[tuple[str, list[Gpu]]]) -> float:
    """The fullest that GPUs can be of these processes; every choice is tried."""
    if not todo:
        return 0.0
    sort, need = todo[0], todo[0].need
    best = best_packing(todo[1:], hosts)
    for kind, gpus in hosts:
        fitting = [gpu for gpu in gpus if gpu.takes(need)] if kind in sort.allowed else []
        # Idle GPUs are all the same; a process that shares, or may disturb others, gets one.
        choices = [fitting[: need.gpu_count]] if whole(need) else [[gpu] for gpu in fitting]
        for chosen in choices:
            if len(chosen) == need.gpu_count:
                for gpu in chosen:
                    gpu.use(need, 1)
                best = max(best, sort.allowed[kind] + best_packing(todo[1:], hosts))
                for gpu in chosen:
                    gpu.use(need, -1)
    return best


GPU_REQUESTS = (
    "[gpu]",
    "[2:gpu]",
    "[3:gpu]",
    "[gpumem=1G,gpuutil=0.25]",
    "[gpumem=2G,gpuutil=0.5]",
    "[gpumem=3G,gpuutil=0.25]",
    "[gpumem=1G,gpuutil=0.75,reserve]",
)


@st.composite
def sorts(draw: st.DrawFn, requests: tuple[str, ...]) -> list[Sort]:
    """A few processes of a few sorts, each for one or both kinds of machine."""
    found = []
    for request in draw(st.lists(st.sampled_from(requests), min_size=1, max_size=3, unique=True)):
        kinds = draw(st.sets(st.sampled_from(sorted(KINDS)), min_size=1))
        need = parse_request(request).groups[0].need
        fills = {kind: fill_of(need, KINDS[kind]) if need.gpus else need.cpus for kind in kinds}
        found.append(a_sort(request, draw(st.integers(1, 3)), **fills))
    return found


@st.composite
def gpu_hosts(draw: st.DrawFn) -> list[HostState]:
    found: list[HostState] = []
    for kind in draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3)):
        gpus = []
        for _ in range(draw(st.integers(1, 3))):
            who = draw(st.sampled_from((NOBODY, NOBODY, OTHERS, OURS)))
            mem_mb = KINDS[kind] if who == NOBODY else draw(st.integers(1, KINDS[kind]))
            util = 1.2 if who == NOBODY else draw(st.sampled_from((0.2, 0.5, 0.7, 0.9)))
            gpus.append((mem_mb, util, who, 0.0))
        found.append((kind, tuple(gpus)))
    return found


@settings(max_examples=150, deadline=None)
@given(sorts(GPU_REQUESTS), gpu_hosts())
def test_no_packing_of_gpus_is_fuller_than_the_bound(
    asked: list[Sort], hosts: list[HostState]
) -> None:
    todo = [sort for sort in asked for _ in range(min(sort.count, 2))]
    for sort in asked:
        sort.count = min(sort.count, 2)
    machines = [(kind, [Gpu(*gpu[:3]) for gpu in gpus]) for kind, gpus in hosts]
    counted = {host: hosts.count(host) for host in hosts}
    assert best_packing(todo, machines) <= gpu_bound(asked, counted, 0.0) + 1e-6


def best_cpus(todo: list[Sort], hosts: list[CpuState]) -> float:
    """The most CPUs these processes can use; every choice is tried."""
    if not todo:
        return 0.0
    need, allowed = todo[0].need, todo[0].allowed
    best = best_cpus(todo[1:], hosts)
    for place, (kind, free, used, empty) in enumerate(hosts):
        if kind in allowed and need.cpus <= free and (not need.exclusive or (empty and not used)):
            left = 0.0 if need.exclusive else free - need.cpus
            after = [*hosts[:place], (kind, left, used + need.cpus, empty), *hosts[place + 1 :]]
            best = max(best, need.cpus + best_cpus(todo[1:], after))
    return best


CPU_REQUESTS = ("[cpus=1]", "[cpus=1.5]", "[cpus=3]", "[cpus=5]", "[cpus=2,exclusive]")


@settings(max_examples=150, deadline=None)
@given(
    sorts(CPU_REQUESTS),
    st.lists(
        st.tuples(
            st.sampled_from(sorted(KINDS)),
            st.sampled_from((0.25, 1.0, 3.5, 6.0, 7.25)),
            st.just(0.0),
            st.booleans(),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_no_packing_of_cpus_is_fuller_than_the_bound(
    asked: list[Sort], hosts: list[CpuState]
) -> None:
    todo = [sort for sort in asked for _ in range(min(sort.count, 2))]
    for sort in asked:
        sort.count = min(sort.count, 2)
    counted = {host: hosts.count(host) for host in hosts}
    assert best_cpus(todo, hosts) <= cpu_bound(asked, counted, 0.0) + 1e-6


def test_the_bound_is_reached_where_one_can_reach_it() -> None:
    """Or a bound of everything would pass as well."""
    asked = [a_sort("[2:gpu]", 2, small=2.0), a_sort("[gpumem=1G,gpuutil=0.5]", 3, small=0.5)]
    hosts = {idle("small", 3): 2}
    machines = [("small", [Gpu(8192, 1.2, NOBODY) for _ in range(3)]) for _ in range(2)]
    packed = best_packing([asked[0]] * 2 + [asked[1]] * 3, machines)
    assert packed == pytest.approx(gpu_bound(asked, hosts, 0.0)) == pytest.approx(5.5)
