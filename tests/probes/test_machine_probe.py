"""Probes in the form the agent sends them, and what the core is told: one case per file."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.config.settings import MachineEntry
from towline.model.machine import Machine
from towline.probes.machine import ConfiguredLimits, limits_of, observe

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_recorded_probe_gives_this_machine(file: Path) -> None:
    case = json.loads(file.read_text())
    machine = observe(
        case["raw"],
        case["previous"],
        case["hello"],
        limits=msgspec.convert(case["limits"], ConfiguredLimits),
        name="m",
        before=msgspec.convert(case["before"], Machine | None),
        ours={int(index): held for index, held in case["ours"].items()},
        engine=case["engine"],
        own_cpu_s=case["own_cpu_s"],
    )
    assert machine == msgspec.convert(case["machine"], Machine), case["about"]


def test_names_and_rights_are_passed_on() -> None:
    machine = observe(
        {},
        None,
        {"cpus": 2},
        name="gpu1",
        clusters=("lab", "all"),
        owners=("ann",),
        aliases=(("big", "A100"),),
    )
    assert (machine.name, machine.clusters, machine.owners, machine.aliases) == (
        "gpu1",
        ("lab", "all"),
        ("ann",),
        (("big", "A100"),),
    )


def test_limits_come_from_the_configuration() -> None:
    entry = MachineEntry("gpu1", cpus=4, mem="10G", gpus=[0, 2])
    assert limits_of(entry) == ConfiguredLimits(4, 10240, (0, 2))
    assert limits_of(MachineEntry("gpu1")) == ConfiguredLimits()
    newer = MachineEntry("gpu1", max_cpus=4, max_mem="10G", stagger=0.5, quiet_hours=["mon", "tue"])
    day = 24 * 60
    assert limits_of(newer) == ConfiguredLimits(4, 10240, None, 0.5, ((0, day), (day, 2 * day)))


def test_in_quiet_hours_a_machine_is_closed_and_says_until_when() -> None:
    limits = limits_of(MachineEntry("gpu1", quiet_hours="mon-fri 09:00-18:00", stagger=2))
    at_ten = observe({}, None, {"cpus": 2}, limits=limits, name="gpu1", minute=10 * 60)
    at_eight = observe({}, None, {"cpus": 2}, limits=limits, name="gpu1", minute=8 * 60)
    assert at_ten.closed == "has quiet hours until 18:00"
    assert (at_eight.closed, at_eight.stagger_s) == ("", 2.0)


values = st.recursive(
    st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
keys = st.sampled_from(["time", "meminfo", "stat", "loadavg", "gpus", "gpu_apps", "jobs"])
lines = st.text(alphabet="0123456789,.[]N/A GPU-MIGaMemTotal:AvailablekBcpu\n", max_size=80)
raws = st.dictionaries(keys, st.one_of(values, lines), max_size=7)


@given(raws, st.one_of(st.none(), raws))
def test_no_answer_of_a_machine_breaks_the_observation(
    raw: dict[str, Any], previous: dict[str, Any] | None
) -> None:
    machine = observe(raw, previous, {"cpus": 4}, name="m")
    assert 0 <= machine.foreign_cpus <= 4
    assert 0 <= machine.foreign_mem_mb <= machine.mem_mb
