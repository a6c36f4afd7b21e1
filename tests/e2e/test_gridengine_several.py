"""Jobs of several processes on a real Grid Engine, through its parallel environments."""

import pytest

from e2e.grid_jobs import configure, processes, shell
from e2e.jobs import complaint, ended, show, submit, wait_for
from e2e.test_slurm_several import meet
from testbed.gridengine import NODES, GridEngine
from testbed.tow import Tow
from testbed.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SLOW_S = 120


def test_processes_on_several_hosts_find_each_other(tow: Tow, gridengine: GridEngine) -> None:
    configure(tow)
    told = meet(tow, "-r", "2:[cpus=2]", cluster="msc")
    hosts = {f"HOST_GROUP0_PROCESS{rank}": known["here"] for rank, known in enumerate(told)}
    assert {known["here"] for known in told} == set(NODES)
    assert all(known["hosts"] == hosts for known in told)
    assert [known["LOCAL_RANK"] for known in told] == ["0", "0"]
    assert show(tow, 1)["machines"] == list(hosts.values())
    ask = f"qacct -j {show(tow, 1)['queue']['number']} 2>/dev/null"
    wait_until(lambda: "granted_pe   pairs" in shell(gridengine, f"{ask} || :"), timeout=SLOW_S)
    many = meet(tow, "-r", "6:[]", cluster="msc")
    here = [known["here"] for known in many]
    assert here == sorted(here, key=here.index) and {here.count(name) for name in NODES} == {3}
    assert [known["LOCAL_RANK"] for known in many] == ["0", "1", "2"] * 2


def test_when_one_process_fails_or_the_job_is_stopped_all_end(
    tow: Tow, gridengine: GridEngine
) -> None:
    configure(tow)
    script = "[ $RANK = 1 ] && { echo failing; exit 3; }; exec sleep 1234"
    done = tow("run", "-c", "msc", "-r", "3:[]", "sh", "-c", script, timeout=SLOW_S)
    assert done.returncode == 3, done
    shown = show(tow, 1)
    assert "process 0.1 on h" in shown["reason"] and shown["reason"].endswith("exit code 3")
    assert {process["state"] for process in shown["processes"]} == {"ended"}
    trap = "trap 'echo asked $RANK; exit 0' TERM; echo ready; sleep 1234 & wait"
    job = submit(tow, "-c", "msc", "-r", "2:[]", "sh", "-c", trap)
    machines = wait_for(tow, job, "running", timeout=SLOW_S)["machines"]
    said = [tow("exec", "--process", rank, str(job), "hostname").stdout for rank in ("0", "1")]
    assert said == [f"{name}\n" for name in machines] and set(machines) == set(NODES)
    assert tow("stop", str(job)).returncode == 0
    assert ended(tow, job, timeout=SLOW_S)["state"] == "stopped"
    printed = tow("log", str(job)).stdout
    assert "asked 0" in printed and "asked 1" in printed
    for host in NODES:
        assert "sleep 1234" not in processes(gridengine, host)
    wait_until(lambda: not shell(gridengine, "qstat"), timeout=SLOW_S)


def test_what_no_parallel_environment_can_do_is_refused_before_anything_is_sent(
    tow: Tow, gridengine: GridEngine
) -> None:
    configure(tow, 'pe = "mpi"')
    for asked, told in {
        ("-r", "2:[cpus=2]"): "no parallel environment for 2 processes of 2 CPUs each; it has: ",
        ("-r", "9:[]"): 'cannot run in PE "mpi"',
        ("-r", "2:[]", "-o", "pe=mpi 1"): "need 2 slots",
        ("-r", "2:[],1:[2:gpu]"): "gives every slot of a job the same",
    }.items():
        assert told in complaint(tow("run", "-c", "msc", *asked, "true"), 2)
    assert not tow.json("status", "-a")["jobs"]
