"""How lines are cut into allocations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import UsageError
from towline.model.grammar import format_request, parse_request
from towline.model.request import (
    GpuNeed,
    Group,
    Need,
    Packing,
    Request,
    check_pack,
    cut,
    share_of,
)


@given(count=st.integers(0, 3000), size=st.integers(0, 100), is_all=st.booleans())
def test_each_line_is_in_one_allocation_and_only_the_last_may_be_smaller(
    count: int, size: int, is_all: bool
) -> None:
    sizes = cut(count, size, is_all)
    assert all(1 <= one <= (size or count) for one in sizes)
    assert all(one == size for one in sizes[:-1])
    left = count - sum(sizes)
    assert left == 0 if is_all else 0 <= left < (size or count + 1)


def test_sixty_four_lines_are_eight_allocations_of_eight() -> None:
    assert cut(64, 8, is_all=False) == [8] * 8
    assert cut(65, 8, is_all=False) == [8] * 8
    assert cut(65, 8, is_all=True) == [*[8] * 8, 1]
    assert cut(5, 0, is_all=False) == []
    assert cut(5, 0, is_all=True) == [5]


@pytest.mark.parametrize(
    ("pack", "word"),
    [
        (Packing(parallel=0), "--pack"),
        (Packing(lines=-1), "--per-allocation"),
        (Packing(stagger_s=-1.0), "--stagger"),
        (Packing(carries=-1), "carried"),
        (Packing(shares={"tpu": ()}), "tpu"),
        (Packing(shares={"cpu": ("a",)}), "CPUs"),
    ],
)
def test_what_cannot_be_meant_is_refused(pack: Packing, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        check_pack(pack)


def shared(text: str, parallel: int) -> str:
    return format_request(share_of(parse_request(text), parallel))


def test_line_on_a_machine_asks_for_its_part() -> None:
    assert shared("[cpus=8,mem=16G,4:gpu]", 4) == "[gpu,cpus=2,mem=4G]"
    assert shared("[cpus=2,gtx1070]", 4) == "[gtx1070,gpuutil=0.25]"
    assert shared("[2:gpu]", 3) == "[gpu,gpuutil=0.5]"
    assert shared("[exclusive]", 2) == "[]"
    assert shared("[exclusive]", 1) == "[exclusive]"
    with pytest.raises(UsageError, match="several kinds"):
        shared("[gtx1070,gtx1060]", 2)


@given(
    cpus=st.integers(1, 128),
    mem=st.integers(0, 10**6),
    gpus=st.integers(0, 16),
    n=st.integers(1, 64),
)
def test_so_many_lines_take_no_more_than_was_asked_for(
    cpus: int, mem: int, gpus: int, n: int
) -> None:
    asked = (GpuNeed(gpus),) if gpus else ()
    need = share_of(Request((Group(1, Need(float(cpus), mem, asked)),)), n).groups[0].need
    assert need.cpus * n <= max(cpus, n) + 1e-9 and need.mem_mb * n <= mem
    used = need.gpu_count * (need.gpu_util or 1.0)
    assert used * n <= gpus + 1e-9
    assert (need.gpu_count > 0) == (gpus > 0)
