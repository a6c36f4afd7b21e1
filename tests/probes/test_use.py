"""What our jobs use is read from two probes of their machine."""

from typing import Any

import pytest

from towline.core.samples import Use, Used
from towline.probes.use import readings_of, used_by_jobs

ENGINE = "abcd1234"
KEY = f"{ENGINE}-7-1-0a0b0c0d-0"
GPUS = "0, GPU-a, NVIDIA A100, 40960, 12000, 90\n1, GPU-b, NVIDIA A100, 40960, 100, 10\n"
APPS = "GPU-a, 41, 8000\nGPU-b, 42, 100\nGPU-a, 99, 4000\n"


def probe(at: float, cpu_s: float, **more: Any) -> dict[str, Any]:
    job = {"rss_mb": 500, "cpu_s": cpu_s, "pids": [41, 42]}
    return {"time": at, "jobs": {KEY: job, "other-7-1-0": job}, "gpus": None, **more}


def test_use_is_what_was_spent_between_two_probes() -> None:
    assert used_by_jobs(probe(105, 12.0), probe(100, 2.0), ENGINE) == {KEY: Use(500, 2.0)}
    assert used_by_jobs(probe(105, 12.0), None, ENGINE) == {KEY: Use(500)}


def test_gpus_are_those_on_which_its_own_programs_are() -> None:
    raw = probe(105, 12.0, gpus=GPUS, gpu_apps=APPS)
    assert used_by_jobs(raw, None, ENGINE) == {KEY: Use(500, None, 0.5, 8100)}


@pytest.mark.parametrize("cpu_s", [1.0, 0.0])
def test_what_ended_in_between_does_not_count_backwards(cpu_s: float) -> None:
    assert used_by_jobs(probe(105, cpu_s), probe(100, 2.0), ENGINE)[KEY].cpus == 0.0


def test_two_looks_at_once_say_nothing_of_cpus() -> None:
    assert used_by_jobs(probe(100.1, 3.0), probe(100, 2.0), ENGINE)[KEY].cpus is None


@pytest.mark.parametrize("jobs", [None, [], {KEY: None}, {KEY: {"rss_mb": "x", "pids": 3}}])
def test_nonsense_is_no_use(jobs: Any) -> None:
    found = used_by_jobs({"time": 1.0, "jobs": jobs, "gpu_apps": APPS}, probe(0, 0), ENGINE)
    assert set(found.values()) <= {Use(0.0)} | {Use(0.0, 0.0)}


def test_what_a_node_wrote_down_is_read_line_by_line() -> None:
    whole = [60.0, 59.5, 0.5, 1.5, 100.0, None, None, None]
    on_gpus = [120.0, 60, 0.5, 1.5, 100, 0.25, 0.5, 512.0]
    odd = [[], None, "x", [1], [*whole[:7], "much"], [-1.0, *whole[1:]], [*on_gpus[:5], 7, 7, 7]]
    found = readings_of([whole, *odd, on_gpus])
    assert [one.at for one in found] == [60.0, 120.0]
    assert found[1].used == Used(0, 0.5, 1.5, 100.0, 0.25, 0.5, 512.0)
    assert readings_of(None) == readings_of({"a": 1}) == []
