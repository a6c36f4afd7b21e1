"""What a runner makes of the hosts and GPUs that a queue names."""

import pytest

from towline.agent.remote.node import devices, site


def test_processes_are_shared_out_by_the_slots_of_each_host() -> None:
    hostfile = "h2 3 cpu@h2 UNDEFINED\nh3 4 cpu@h3 UNDEFINED\nh2 1 other@h2 UNDEFINED\n"
    slots = site.slots_in(hostfile)
    assert slots == {"h2": 4, "h3": 4}
    assert site.shares(slots, 8, 1) == {"h2": 4, "h3": 4}
    assert site.shares(slots, 4, 2) == {"h2": 2, "h3": 2}
    # More room than is needed: none of the hosts is left out.
    assert site.shares(slots, 3, 1) == {"h2": 2, "h3": 1}
    # Less than is needed, which nobody should ask for: all of them begin all the same.
    assert site.shares({"h2": 1, "h3": 1}, 4, 1) == {"h2": 3, "h3": 1}
    assert site.shares({"h2": 2, "h3": 2}, 1, 2) == {"h2": 1}


def test_words_for_another_host_survive_its_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOWLINE_BEGAN", "12.5")
    monkeypatch.setenv("TOWLINE_RUN", "1")
    words = site.GridEngine().words_on("h3", ["/bin/sh", "/it's a/script", "2"])
    assert words[:4] == ["qrsh", "-inherit", "-nostdin", "h3"]
    assert words[4:7] == ["/usr/bin/env", "TOWLINE_BEGAN=12.5", "TOWLINE_RUN=1"]
    assert words[7:] == ["/bin/sh", "'/it'\"'\"'s a/script'", "2"]


def test_gpus_that_are_named_or_least_used_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = "0, GPU-a, NVIDIA A, 8000, 700, 3\n1, GPU-b, NVIDIA, 8000, [N/A], 0\nno devices\n"
    assert devices.by_use(answer) == [1, 0]
    assert devices.by_use("") == []
    assert site.granted_gpus() == []
    monkeypatch.setenv("SGE_HGR_ngpus", "cuda0 cuda3")
    assert site.granted_gpus() == ["0", "3"]
    monkeypatch.setenv("SGE_HGR_ngpus", "")
    assert site.granted_gpus() == []
