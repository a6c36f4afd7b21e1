"""What every process is told of itself and the others."""

from towline.backends.variables import process_variables, shared_variables
from towline.model.grammar import parse_request
from towline.model.job import Attempt, Job, JobSpec, State
from towline.model.machine import Slot

#: By these, frameworks take a process for one of several that a launcher has started.
OF_A_LAUNCHER = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


def variables(request: str, *machines: str, **env: str) -> list[dict[str, str]]:
    attempt = Attempt(number=1, placement=tuple(Slot(name) for name in machines))
    spec = JobSpec(argv=("true",), cluster="lab", owner="me", request=request, env=env)
    job = Job(id=7, spec=spec, state=State.STARTING, submitted=0.0, attempt=attempt)
    asked = parse_request(request)
    addresses = {name: f"address-of-{name}" for name in machines}
    return process_variables(job, asked, shared_variables(job, asked, addresses, 4321))


def test_a_job_of_one_process_does_not_believe_that_a_launcher_started_it() -> None:
    [own] = variables("[]", "gpu1")
    assert not OF_A_LAUNCHER & own.keys()
    assert own["TOWLINE_JOB"] == "7" and own["PROCESS_INDEX"] == "0"
    assert own["HOST_GROUP0_PROCESS0"] == "address-of-gpu1"


def test_a_rank_that_the_user_gives_is_kept() -> None:
    assert variables("[]", "gpu1", RANK="5")[0]["RANK"] == "5"


def test_processes_of_one_job_know_where_to_meet() -> None:
    found = variables("3:[]", "gpu1", "gpu1", "gpu2")
    assert [own["RANK"] for own in found] == ["0", "1", "2"]
    assert [own["LOCAL_RANK"] for own in found] == ["0", "1", "0"]
    shared = {(own["WORLD_SIZE"], own["MASTER_ADDR"], own["MASTER_PORT"]) for own in found}
    assert shared == {("3", "address-of-gpu1", "4321")}
