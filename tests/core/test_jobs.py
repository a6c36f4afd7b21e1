"""How one job goes on: ends, retries, stops, gangs."""

import pytest

from towline.core import jobs
from towline.engine.reasons import reason_words
from towline.model.job import Ending, Job, JobSpec, State
from towline.model.machine import Slot
from towline.model.reason import NO_REASON, STOPPED, Reason
from towline.model.results import NOTHING, PENDING, ResultsState

NOW = 1000.0
OK = Ending(code=0, started=1.0, ended=2.0)


def a_running_job(processes: int = 1, retries: int = 0, ends_together: bool = False) -> Job:
    request = f"{processes}:[]"
    spec = JobSpec(
        ("true",), cluster="lab", owner="me", request=request, retries=retries,
        ends_together=ends_together,
    )  # fmt: skip
    placement = tuple(Slot(f"gpu{rank + 1}") for rank in range(processes))
    return jobs.running(jobs.placed(jobs.accepted(1, spec, NOW), placement), NOW)


def after(job: Job, *endings: Ending) -> Job:
    for rank, ending in enumerate(endings):
        job = jobs.with_ending(job, rank, ending)
    return jobs.concluded(job, NOW + 5)


def test_a_job_whose_processes_all_end_well_is_done() -> None:
    job = after(a_running_job(2), OK, OK)
    assert (job.state, job.exit_code, job.reason) == (State.DONE, 0, NO_REASON)


def test_a_job_that_ends_with_its_first_process_is_done_though_the_others_were_stopped() -> None:
    stopped = Ending(signal=15, cause="stopped", started=1.0, ended=3.0)
    job = after(a_running_job(2, ends_together=True), stopped, OK)
    assert (job.state, job.exit_code, job.reason) == (State.DONE, 0, NO_REASON)
    failed = Ending(code=3, started=1.0, ended=2.0)
    job = after(a_running_job(2, ends_together=True), stopped, failed)
    assert (job.state, job.exit_code) == (State.FAILED, 3)
    asked = jobs.stop_asked(a_running_job(2, ends_together=True), NOW)
    assert after(asked, stopped, OK).state is State.STOPPED


@pytest.mark.parametrize(
    ("ending", "code", "reason"),
    [
        (Ending(code=3, ended=2.0), 3, "exit code 3"),
        (Ending(signal=9, ended=2.0), 137, "killed by signal 9 (SIGKILL)"),
        (Ending(signal=15, cause="timeout", started=1.0, ended=3.0), 143, "time limit"),
        (Ending(signal=9, cause="oom", ended=2.0), 137, "out of memory"),
        (Ending(cause="oom", text="killed: too much (--mem)", ended=2.0), None, "killed: too much"),
        (Ending(code=127, cause="not_found", text="command not found: x"), 127, "not found: x"),
        (Ending(code=4, cause="setup", ended=2.0), 4, "set-up failed with exit code 4"),
        (Ending(signal=200, ended=2.0), 328, "unknown"),
        (Ending(cause="no_space"), None, "no_space"),
    ],
)
def test_a_failed_job_says_why(ending: Ending, code: int | None, reason: str) -> None:
    job = after(a_running_job(), ending)
    assert (job.state, job.exit_code) == (State.FAILED, code)
    assert reason in reason_words(job.reason)


@pytest.mark.parametrize(
    ("ending", "results"),
    [
        (Ending(code=3, started=1.0, ended=2.0, made=-1), PENDING),
        (Ending(code=3, started=1.0, ended=2.0, made=0), NOTHING),
        (Ending(code=3, ended=2.0, out_size=4), PENDING),
        (Ending(code=127, cause="not_found", ended=2.0), NOTHING),
    ],
)
def test_what_started_or_printed_something_has_results(
    ending: Ending, results: ResultsState
) -> None:
    assert after(a_running_job(), ending).results == results


def test_the_process_that_failed_first_is_to_blame_not_those_stopped_because_of_it() -> None:
    stopped = Ending(signal=15, cause="stopped", started=1.0, ended=1.5)
    job = after(a_running_job(3), stopped, Ending(code=7, ended=2.0), stopped)
    assert (job.exit_code, reason_words(job.reason)) == (7, "process 0.1 on gpu2: exit code 7")


def test_a_lost_process_makes_a_lost_job() -> None:
    job = after(a_running_job(), Ending(cause="lost", text="the machine restarted", ended=2.0))
    assert (job.state, job.reason) == (State.LOST, Reason("lost", "the machine restarted"))


def test_a_retry_avoids_the_machine_it_failed_on_and_counts() -> None:
    job = after(a_running_job(retries=1), Ending(code=3, ended=2.0))
    assert (job.state, job.failures, job.avoid) == (State.QUEUED, 1, ("gpu1",))
    assert job.reason.then == "trying_again"
    again = jobs.running(jobs.placed(job, (Slot("gpu2"),)), NOW)
    assert again.attempt is not None and again.attempt.number == 2
    assert after(again, Ending(code=3, ended=2.0)).state is State.FAILED


def test_a_start_that_never_happened_is_no_failure() -> None:
    job = after(a_running_job(retries=0), Ending(cause="void"))
    assert (job.state, job.failures, job.avoid) == (State.QUEUED, 0, ())


def test_a_waiting_job_stops_at_once() -> None:
    spec = JobSpec(argv=("true",), cluster="lab", owner="me")
    job = jobs.stop_asked(jobs.accepted(1, spec, NOW), NOW)
    assert (job.state, job.ended) == (State.STOPPED, NOW)


def test_a_running_job_stops_when_its_processes_did() -> None:
    job = jobs.stop_asked(a_running_job(retries=5), NOW)
    assert job.state is State.STOPPING
    job = after(job, Ending(signal=15, cause="stopped", ended=2.0))
    assert (job.state, job.reason) == (State.STOPPED, STOPPED)


def test_a_job_that_ends_well_before_the_signal_reaches_it_is_done() -> None:
    assert after(jobs.stop_asked(a_running_job(), NOW), OK).state is State.DONE


def test_retrying_by_hand_forgets_the_old_end_but_counts_attempts_on() -> None:
    failed = after(a_running_job(), Ending(code=3, ended=2.0))
    job = jobs.placed(jobs.retried(failed), (Slot("gpu1"),))
    assert (job.ended, job.exit_code, job.reason) == (None, None, NO_REASON)
    assert job.attempt is not None and job.attempt.number == 2


def test_a_job_that_is_tried_again_says_which_process_failed_where() -> None:
    job = after(a_running_job(2, retries=1), OK, Ending(code=7, ended=3.0))
    assert (job.state, job.reason.kind, job.reason.code) == (State.QUEUED, "exit_code", 7)
    said = "attempt 1 on gpu2: process 0.1 on gpu2: exit code 7; trying again"
    assert reason_words(job.reason) == said


def test_what_a_job_used_is_said_where_that_ended_it() -> None:
    job = after(a_running_job(), Ending(signal=9, cause="oom", peak_kb=3 << 20, ended=2.0))
    assert "out of memory, when it used up to 3 GB; ask for more" in reason_words(job.reason)
