"""Which CPUs and GPUs each line of a pack gets."""

from hypothesis import given
from hypothesis import strategies as st
from pytest import MonkeyPatch

from towline.agent.remote.node import shares
from towline.agent.remote.node.shares import LineShares, divided, gpus_here


@given(count=st.integers(1, 70), slots=st.integers(1, 70))
def test_all_is_shared_and_as_equally_as_can_be(count: int, slots: int) -> None:
    parts = divided(list(range(count)), slots)
    sizes = {len(part) for part in parts}
    assert len(parts) == slots and max(sizes) - min(sizes) <= 1 and min(sizes) >= 1
    assert {one for part in parts for one in part} == set(range(count))
    if slots <= count:
        assert sum(map(len, parts)) == count
    else:
        users = [sum([one] == part for part in parts) for one in range(count)]
        assert max(users) - min(users) <= 1


def test_slots_have_cpus_and_gpus_of_their_own() -> None:
    found = LineShares({"cpu": [], "cuda": []}, 2, [0, 1, 2, 3], ["GPU-ab", "MIG-cd"])
    assert found.cpus == [[0, 1], [2, 3]]
    assert found.variables(1) == {"CUDA_VISIBLE_DEVICES": "MIG-cd"}
    assert found.said(0) == "CPUs [0, 1], CUDA_VISIBLE_DEVICES=GPU-ab"
    assert found.words == []


def test_uneven_shares_are_no_error_and_are_said() -> None:
    found = LineShares({"cpu": [], "cuda": []}, 3, [0, 1], ["0", "1", "2", "3"])
    assert found.cpus == [[0, 1]] * 3
    assert found.gpus["cuda"] == [["0"], ["1"], ["2", "3"]]
    assert found.words == [
        "2 CPUs among 3 lines at a time: not all have as many",
        "4 GPUs among 3 lines at a time: not all have as many",
    ]
    (word,) = LineShares({"cuda": []}, 4, [], ["0", "1"]).words
    assert word == "2 GPUs among 4 lines at a time: several share one"


def test_what_is_named_is_shared_and_what_is_not_asked_for_is_not() -> None:
    found = LineShares({"cuda": ["5", "6"], "rendering": []}, 2, [0, 1], ["0"])
    assert found.cpus == []
    assert found.variables(1)["CUDA_VISIBLE_DEVICES"] == "6"
    assert found.variables(1)["EGL_DEVICE_ID"] == "0"
    assert LineShares({}, 2, [0, 1], ["0"]).said(0) == "no share of its own"
    assert LineShares({"cuda": []}, 2, [0], []).variables(0) == {}


def test_gpus_are_those_of_the_allocation_by_whatever_names(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(shares.devices, "choose", lambda claimant, count: {})
    for text, names in {
        "": [],
        "-1": [],
        "NoDevFiles": [],
        "0, 1": ["0", "1"],
        "GPU-1b2c,MIG-GPU-3/1/0": ["GPU-1b2c", "MIG-GPU-3/1/0"],
    }.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
        assert gpus_here(None, 0) == names
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("SLURM_JOB_GPUS", "3")
    assert gpus_here(None, 0) == ["3"]
    monkeypatch.delenv("SLURM_JOB_GPUS")
    monkeypatch.setattr(shares.site, "answer", lambda words: "1, u, n, 9, 5, 0\n0, u, n, 9, 7, 0\n")
    assert gpus_here(None, 0) == ["0", "1"]
