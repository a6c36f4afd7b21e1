"""How many equal jobs a machine could run at a time."""

import pytest

from towline.core.machines.capacity import MOST, seats_for
from towline.core.machines.demand import demand_of
from towline.core.machines.machine_index import MachineIndex
from towline.model.grammar import parse_request
from towline.model.machine import Gpu, Machine
from towline.model.request import Need


def need(text: str) -> Need:
    return parse_request(text).groups[0].need


def machines(*gpus: Gpu) -> MachineIndex:
    machines = MachineIndex()
    machines.see(Machine("m", cpus=8, mem_mb=16000, gpus=gpus, clusters=("lab",)))
    return machines


def free(index: int, foreign_mem_mb: int = 0) -> Gpu:
    return Gpu(index, "GTX 1070", 8000, foreign_mem_mb=foreign_mem_mb)


ONE_EACH = "[mem=100M,gpu,gpumem=1000M,gpuutil=0.75,reserve]"


def test_reserved_gpus_are_given_out_once_each() -> None:
    assert seats_for(machines(free(0), free(1)).hosts["m"], need(ONE_EACH)) == [(0,), (1,)]


def test_a_gpu_that_others_have_filled_is_not_counted() -> None:
    assert seats_for(machines(free(0, 7500), free(1)).hosts["m"], need(ONE_EACH)) == [(1,)]


def test_what_our_jobs_have_is_not_counted_twice_and_is_left_as_it_is() -> None:
    hosts = machines(free(0), free(1))
    hosts.take(1, "m", demand_of(need(ONE_EACH)), (0,))
    assert seats_for(hosts.hosts["m"], need(ONE_EACH)) == [(1,)]
    assert seats_for(hosts.hosts["m"], need(ONE_EACH)) == [(1,)]


def test_shared_gpus_take_as_many_as_fit() -> None:
    shared = need("[gpu,gpumem=3000M,gpuutil=0.5]")
    assert sorted(seats_for(machines(free(0), free(1)).hosts["m"], shared)) == [
        (0,),
        (0,),
        (1,),
        (1,),
    ]


def test_memory_limits_jobs_without_gpus() -> None:
    assert seats_for(machines().hosts["m"], need("[mem=7000M]")) == [(), ()]


def test_a_whole_machine_is_one_place() -> None:
    assert seats_for(machines().hosts["m"], need("[exclusive]")) == [()]


def test_tiny_jobs_are_not_counted_for_ever() -> None:
    assert len(seats_for(machines().hosts["m"], need("[cpus=0.001]"))) == MOST


def test_nothing_fits_where_the_machine_is_away_or_lacks_the_gpu() -> None:
    assert seats_for(None, need("[]")) == []
    assert seats_for(machines().hosts["m"], need("[gpu]")) == []
    away = machines()
    away.gone("m")
    assert seats_for(away.hosts["m"], need("[]")) == []


@pytest.mark.parametrize(("util", "count"), [(0.3, 6), (0.4, 4), (0.6, 2)])
def test_the_cost_model_of_the_ssh_scheduler_takes_as_many_on_the_same_gpus(
    util: float, count: int
) -> None:
    machine = Machine("m", 24, 30607, (free(0), free(1)), foreign_cpus=2.976, clusters=("lab",))
    hosts = MachineIndex()
    hosts.see(machine)
    shared = need(f"[cpus=2,mem=2000M,gpu,gpumem=1000M,gpuutil={util}]")
    assert seats_for(hosts.hosts["m"], shared) == [(0,), (1,)] * (count // 2)
