"""Which job folders may go, and when it is time to look."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from towline.core.garbage import (
    DAY_S,
    RECENT_S,
    Folder,
    Rules,
    folders_to_remove,
    is_due,
    job_of,
    may_go,
)
from towline.model.job import FINAL, Attempt, Job, JobSpec, State
from towline.model.machine import Slot
from towline.model.results import NOTHING, PENDING, ResultsState, at_home, not_fetched

ENGINE = "abcd"
NOW = 1000 * DAY_S
RULES = Rules(after_s=14 * DAY_S, keep_bytes=1000)


def a_job(
    number: int = 1,
    days_ago: float | None = 20,
    results: ResultsState = NOTHING,
    state: State = State.DONE,
) -> Job:
    """A job that ended some days ago; None: it has not."""
    spec = JobSpec(argv=("true",), cluster="lab", owner="me")
    ended = None if days_ago is None else NOW - days_ago * DAY_S
    return Job(number, spec, state=state, ended=ended, results=results)


def a_folder(number: int = 1, size: int = 100, ended: bool = True, place: str = "1-0") -> Folder:
    return Folder(f"{ENGINE}-{number}-{place}", size, ended)


def going(folders: list[Folder], *jobs: Job) -> list[str]:
    known = {job.id: job for job in jobs}
    found = folders_to_remove(folders, known, ENGINE, NOW, RULES, earlier={1: {"0badcafe"}})
    return [folder.key for folder in found]


def test_every_folder_of_a_job_that_ended_long_ago_goes() -> None:
    folders = [a_folder(), a_folder(place="2-0"), a_folder(place="2-0.x1.77")]
    assert going(folders, a_job()) == ["abcd-1-1-0", "abcd-1-2-0", "abcd-1-2-0.x1.77"]


def test_a_job_that_ended_not_so_long_ago_stays() -> None:
    assert going([a_folder()], a_job(days_ago=13)) == []


def test_a_job_that_has_not_ended_stays_however_full_the_machine_is() -> None:
    running = a_job(days_ago=None, state=State.RUNNING)
    assert going([a_folder(size=5000)], running) == []
    tried_again = a_job(days_ago=20, state=State.QUEUED)
    assert going([a_folder(size=5000)], tried_again) == []


def test_a_job_with_results_that_are_not_home_stays() -> None:
    for results in (PENDING, not_fetched("no space left on device")):
        assert going([a_folder(size=5000)], a_job(results=results)) == []
    assert going([a_folder()], a_job(results=at_home("/home/me/p/job_results/1"))) == ["abcd-1-1-0"]


def test_folders_of_other_engines_and_strange_names_stay() -> None:
    keys = ["abce-1-1-0", "abcd1-1-1-0", "abcd-1", "abcd-x-1-0", "abcd-1-1-0.bak", "my-notes"]
    assert going([Folder(key, 5000, True) for key in keys], a_job()) == []


def test_folders_of_a_job_go_whichever_version_named_them() -> None:
    job = replace(a_job(), attempt=Attempt(3, (Slot("gpu1"),), token="12345678"))
    places = ["1-0", "2-0badcafe-0", "3-12345678-0", "3-12345678-0.x1.5"]
    folders = [a_folder(place=place) for place in places]
    assert going(folders, job) == [f"abcd-1-{place}" for place in places]


def test_a_folder_of_the_same_number_that_only_a_copy_of_the_store_knows_stays() -> None:
    job = replace(a_job(), attempt=Attempt(3, (Slot("gpu1"),), token="12345678"))
    theirs = a_folder(place="3-87654321-0", size=5000, ended=False)
    assert going([a_folder(place="3-12345678-0"), theirs], job) == ["abcd-1-3-12345678-0"]


def test_a_folder_of_a_job_that_is_not_remembered_stays() -> None:
    assert going([a_folder(7)], a_job(1)) == []


def test_nothing_of_a_job_goes_while_something_still_runs_beside_it() -> None:
    assert going([a_folder(), a_folder(place="1-0.x1.5", ended=False)], a_job()) == []


def test_the_oldest_go_first_while_the_machine_is_too_full() -> None:
    jobs = [a_job(1, days_ago=1), a_job(2, days_ago=3), a_job(3, days_ago=2)]
    folders = [a_folder(number, size=600) for number in (1, 2, 3)]
    assert going(folders, *jobs) == ["abcd-2-1-0", "abcd-3-1-0"]


def test_a_job_that_ended_just_now_stays_though_the_machine_is_too_full() -> None:
    just_now = RECENT_S / DAY_S / 2
    assert going([a_folder(size=5000)], a_job(days_ago=just_now)) == []


def test_what_belongs_to_a_job_is_told_by_its_name() -> None:
    assert job_of("abcd-12-1-0", ENGINE) == 12
    assert job_of("abcd-12-1-0\n", ENGINE) is None


def test_it_is_time_once_a_day_when_idle_and_after_two_days_in_any_case() -> None:
    assert not is_due(NOW - 0.9 * DAY_S, NOW, idle=True)
    assert is_due(NOW - 1.1 * DAY_S, NOW, idle=True)
    assert not is_due(NOW - 1.1 * DAY_S, NOW, idle=False)
    assert is_due(NOW - 2.1 * DAY_S, NOW, idle=False)


def test_a_clock_that_was_put_back_does_not_put_it_off_for_ever() -> None:
    assert is_due(NOW + 100 * DAY_S, NOW, idle=True)


JOBS = st.builds(
    a_job,
    number=st.integers(1, 6),
    days_ago=st.none() | st.floats(0, 40),
    results=st.sampled_from([NOTHING, PENDING, not_fetched("x"), at_home("/home/x")]),
    state=st.sampled_from(list(State)),
)
FOLDERS = st.builds(
    a_folder,
    number=st.integers(1, 8),
    size=st.integers(0, 900),
    ended=st.booleans(),
    place=st.sampled_from(["1-0", "1-1", "2-0", "1-0.x1.2"]),
)


@given(st.lists(JOBS, unique_by=lambda job: job.id), st.lists(FOLDERS, unique_by=lambda f: f.key))
def test_only_what_is_surely_over_goes_and_never_more_than_asked(
    jobs: list[Job], folders: list[Folder]
) -> None:
    by_number = {job.id: job for job in jobs}
    gone = folders_to_remove(folders, by_number, ENGINE, NOW, RULES, {})
    left = sum(folder.bytes for folder in folders)
    for folder in gone:
        job = by_number[job_of(folder.key, ENGINE) or 0]
        assert folder.ended and job.state in FINAL and may_go(job, NOW)
        assert job.results in (NOTHING, at_home("/home/x"))
    # The last job that went had to: it is old, or without it there was still too much.
    if gone:
        last = by_number[job_of(gone[-1].key, ENGINE) or 0]
        before_it = left - sum(f.bytes for f in gone if job_of(f.key, ENGINE) != last.id)
        assert NOW - (last.ended or 0) > RULES.after_s or before_it > RULES.keep_bytes
