"""What jobs of other Engines were granted counts as used, once: granted or used, what is more."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.model.machine import Gpu, Machine, Slot
from towline.model.request import GpuNeed, Need
from towline.probes.claims import beside, claim_of
from towline.probes.machine import ConfiguredLimits, observe

GB = 1024
HELLO = {"cpus": 8}
CLAIM = {"key": "e-1-1-0", "user": "ann", "mine": False, "cpus": 0, "gpus": []}


def a_probe(*claims: dict[str, Any], at: float = 1000.0, **more: Any) -> dict[str, Any]:
    """8 CPUs and 16 GB, of which 4 GB are used, and GPUs of 8 GB if `gpus` says how they are."""
    meminfo = f"MemTotal: {16 * GB * GB} kB\nMemAvailable: {12 * GB * GB} kB\n"
    whole = [{**CLAIM, **claim} for claim in claims]
    return {"time": at, "meminfo": meminfo, "claims": whole, "loadavg": "0 0 0", **more}


def seen(*claims: dict[str, Any], **more: Any) -> Machine:
    own = more.pop("own", ())
    return observe(a_probe(*claims, **more), None, HELLO, name="m", own=own)


def use(rss_mb: int = 0, cpu_s: float = 0.0, *pids: int) -> dict[str, Any]:
    return {"rss_mb": rss_mb, "cpu_s": cpu_s, "pids": list(pids)}


def gpu_with(*claims: dict[str, Any], used: int = 0, util: int = 0, apps: str = "") -> Gpu:
    gpus = f"0, GPU-0, GTX, 8192, {used}, {util}\n"
    return seen(*claims, gpus=gpus, gpu_apps=apps).gpus[0]


@pytest.mark.parametrize(
    ("measured", "claims", "total"),
    [
        (5.0, [], 5.0),
        (0.0, [(3.0, 0.0)], 3.0),
        (3.0, [(3.0, 3.0)], 3.0),
        (4.0, [(3.0, 4.0)], 4.0),
        # A foreign program and a claimant that has not begun yet.
        (5.0, [(3.0, 0.0)], 8.0),
        # Nobody can tell whose it is: then it is the claimant's, up to what it was granted.
        (2.0, [(3.0, None)], 3.0),
        (5.0, [(3.0, None)], 5.0),
        (5.0, [(3.0, None), (1.0, 2.0)], 5.0),
    ],
)
def test_use_and_claims_are_never_counted_twice(
    measured: float, claims: list[tuple[float, float | None]], total: float
) -> None:
    assert sum(beside(measured, claims)) == total


def test_granted_memory_counts_before_it_is_used() -> None:
    assert seen().foreign_mem_mb == 4 * GB
    assert seen({"mem_mb": 3 * GB, "use": use()}).foreign_mem_mb == 7 * GB
    assert seen({"mem_mb": 3 * GB, "use": use(rss_mb=3 * GB)}).foreign_mem_mb == 4 * GB
    assert seen({"mem_mb": 3 * GB, "use": None}).foreign_mem_mb == 4 * GB
    assert seen({"mem_mb": 99 * GB, "use": None}).foreign_mem_mb == 16 * GB


def test_granted_cpus_count_at_once_and_no_longer_than_they_are_granted() -> None:
    machine = seen({"cpus": 3})
    assert (machine.foreign_cpus, machine.claimed_cpus, machine.claimed_by) == (3.0, 3.0, "ann")
    after = observe(a_probe(at=1005.0), a_probe(), HELLO, name="m", before=machine)
    assert (after.foreign_cpus, after.claimed_by) == (0.0, "")
    assert seen({"cpus": 1e9}).foreign_cpus == 8.0


def test_work_of_a_claimant_is_not_taken_for_that_of_a_program() -> None:
    stat = "cpu  {} 0 0 90000 0 0 0 0 0 0"
    before = a_probe({"cpus": 2, "use": use(cpu_s=50.0)}, stat=stat.format(1000))
    now = a_probe({"cpus": 2, "use": use(cpu_s=90.0)}, at=1010.0, stat=stat.format(6000))
    # 5 CPUs were busy, 4 of them for the job that was granted 2.
    machine = observe(now, before, HELLO, name="m")
    assert (machine.foreign_cpus, machine.claimed_cpus) == (5.0, 4.0)
    assert (
        observe(now, before, HELLO, name="m", limits=ConfiguredLimits(cpus=4)).foreign_cpus == 1.0
    )


def test_our_own_claims_are_counted_by_us_alone() -> None:
    mine = {"mine": True, "cpus": 2, "gpus": [0], "exclusive": True}
    machine = seen(mine, own={"e-1-1-0"})
    assert (machine.foreign_cpus, machine.claimed_by, machine.closed) == (0.0, "", "")
    # The same name in another user's folder is not ours.
    assert seen({**mine, "mine": False}, own={"e-1-1-0"}).claimed_by == "ann"
    assert seen(mine, own={"e-2-1-0"}).closed == "a job of ann has the whole machine"


def test_a_claimed_gpu_says_whose_it_is_and_whether_it_is_shared() -> None:
    shared = gpu_with({"gpus": [0], "gpu_mem_mb": 3000, "gpu_util": 0.4})
    assert (shared.foreign_mem_mb, shared.foreign_util) == (3000, 0.4)
    assert (shared.claimed_by, shared.reserved) == ("ann", False)
    both = gpu_with({"gpus": [0], "reserved": True}, {"gpus": [0], "user": "bob"})
    assert (both.claimed_by, both.reserved) == ("ann, bob", True)
    assert gpu_with({"gpus": [1], "reserved": True}).claimed_by == ""


def test_memory_of_a_gpu_is_the_claimants_if_its_programs_are_listed() -> None:
    claim = {"gpus": [0], "gpu_mem_mb": 3000, "use": use(0, 0, 41)}
    foreign = "GPU-0, 77, 2000\n"
    assert gpu_with(claim, used=2000, apps=foreign).foreign_mem_mb == 5000
    assert gpu_with(claim, used=5000, apps=foreign + "GPU-0, 41, 3000\n").foreign_mem_mb == 5000
    assert gpu_with(claim, used=6000, apps=foreign + "GPU-0, 41, 4000\n").foreign_mem_mb == 6000
    # Not listed, or not told how much: no more than what is used in all, or granted.
    assert gpu_with(claim, used=2000).foreign_mem_mb == 3000
    assert gpu_with(claim, used=4000, apps="GPU-0, 41, [N/A]\n").foreign_mem_mb == 4000
    assert gpu_with({**claim, "gpu_mem_mb": 99_000}).foreign_mem_mb == 8192


def test_an_order_says_what_was_granted() -> None:
    machine = Machine("m", 8, 100, gpus=(Gpu(0, "GTX", 8192), Gpu(1, "GTX", 6144)))
    assert claim_of(Need(), Slot("m"), machine) == {"cpus": 1.0}
    need = Need(2.0, 500, (GpuNeed(2),), gpu_mem_mb=700, gpu_reserved=False, exclusive=True)
    assert claim_of(need, Slot("m", (1, 0)), machine) == {
        "cpus": 2.0,
        "mem_mb": 500,
        "exclusive": True,
        "gpus": [1, 0],
        "gpu_mem_mb": 700,
        "gpu_util": 0.0,
        "reserved": False,
        "room_mb": [6144, 8192],
    }


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
names = st.sampled_from(
    ["key", "user", "mine", "cpus", "mem_mb", "gpus", "gpu_mem_mb", "gpu_util", "use", "exclusive"]
)
odd_claims = st.one_of(values, st.lists(st.dictionaries(names, values), max_size=3))


@given(odd_claims, odd_claims)
def test_no_claim_breaks_the_observation(now: Any, before: Any) -> None:
    gpus = "0, GPU-0, GTX, 8192, 10, 5\n"
    raw = a_probe(gpus=gpus) | {"claims": now}
    previous = a_probe(at=999.0) | {"claims": before}
    machine = observe(raw, previous, HELLO, name="m")
    assert 0 <= machine.foreign_cpus <= 24
    assert 0 <= machine.foreign_mem_mb <= machine.mem_mb
    assert 0 <= machine.gpus[0].foreign_mem_mb <= 8192
    assert 0 <= machine.gpus[0].foreign_util <= 1


def test_what_our_own_jobs_use_beyond_their_grant_is_not_there_for_others() -> None:
    mine = {"key": "e-1-1-0", "mine": True, "mem_mb": GB, "gpus": [0], "gpu_mem_mb": 2 * GB}
    jobs = {"e-1-1-0": use(3 * GB, 0.0, 77)}
    more = {
        "jobs": jobs,
        "gpus": "0, GPU-0, GTX, 8192, 5120, 0\n",
        "gpu_apps": "GPU-0, 77, 5120\n",
    }
    machine = seen(mine, own={"e-1-1-0"}, **more)
    assert machine.foreign_mem_mb == 3 * GB  # 4 GB are used, of which 1 GB was granted
    assert machine.gpus[0].foreign_mem_mb == 3 * GB
    alone = seen({**mine, "reserved": True}, own={"e-1-1-0"}, **more)
    assert alone.gpus[0].foreign_mem_mb == 0
