"""What jobs used is kept for as long as they run, and never becomes much."""

from hypothesis import given
from hypothesis import strategies as st

from towline.core.samples import (
    MOST,
    RECENT,
    STRETCH_S,
    Measuring,
    Peaks,
    Reading,
    SampleStretch,
    Use,
    Used,
    peaks_of,
    thinned,
    with_readings,
)


def minute(number: int, cpus: float = 1.0, attempt: int = 1) -> SampleStretch:
    used = Used(0, cpus, cpus, 100.0, 0.5, 0.9, 1000.0)
    return SampleStretch(number * STRETCH_S, STRETCH_S, attempt, (used,))


def test_a_minute_has_the_average_and_the_most_of_each_process() -> None:
    measuring = Measuring(attempt=2, at=100.0)
    measuring.take(0, Use(mem_mb=100), 100.0)
    measuring.take(1, Use(mem_mb=5, cpus=0.5), 100.0)
    measuring.take(0, Use(200, 1.0, 0.2, 4000), 130.0)
    assert not measuring.is_over
    measuring.take(0, Use(150, 3.0, 0.6, 3000), 160.0)
    assert measuring.is_over
    processes = (Used(0, 2.0, 3.0, 200.0, 0.4, 0.6, 4000), Used(1, 0.5, 0.5, 5.0))
    assert measuring.stretch() == SampleStretch(100.0, 60.0, 2, processes)


def test_a_job_that_runs_for_weeks_keeps_few_stretches_and_its_last_minutes() -> None:
    kept: list[SampleStretch] = []
    minutes = 3 * 7 * 24 * 60
    for number in range(minutes):
        kept.append(minute(number, cpus=7.0 if number == 5 else 1.0))
        if len(kept) > MOST:
            kept = thinned(kept)
    assert len(kept) <= MOST
    assert [one.seconds for one in kept[-RECENT:]] == [STRETCH_S] * RECENT
    assert sum(one.seconds for one in kept) == minutes * STRETCH_S
    assert peaks_of(kept) == Peaks(7.0, 100.0, 0.9, 1000.0)
    assert 1.0 <= kept[0].processes[0].cpus < 1.1


def test_stretches_of_two_attempts_are_not_put_together() -> None:
    old = [minute(number, attempt=number) for number in range(MOST + 1 - RECENT)]
    recent = [minute(number, attempt=999) for number in range(1000, 1000 + RECENT)]
    assert thinned([*old, *recent]) == [*old, *recent][-MOST:]


def test_processes_of_a_job_count_together() -> None:
    both = (Used(0, 1.0, 2.0, 100.0), Used(1, 1.0, 1.5, 50.0, 0.5, 0.7, 10.0))
    assert peaks_of([SampleStretch(0.0, 60.0, 1, both)]) == Peaks(3.5, 150.0, 0.7, 10.0)
    assert peaks_of([]) == Peaks()


@given(st.lists(st.tuples(st.integers(1, 3), st.floats(0, 64)), min_size=1, max_size=400))
def test_however_it_is_thinned_nothing_is_forgotten_but_detail(
    found: list[tuple[int, float]],
) -> None:
    attempts = sorted(attempt for attempt, _ in found)
    kept = [minute(n, cpus, attempts[n]) for n, (_, cpus) in enumerate(found)][:MOST]
    fewer = thinned(kept)
    assert sum(one.seconds for one in fewer) == sum(one.seconds for one in kept)
    assert peaks_of(fewer) == peaks_of(kept)
    assert [one.at for one in fewer] == sorted({one.at for one in fewer})


def reading(number: int, cpus: float = 1.0) -> Reading:
    return Reading(number * STRETCH_S, STRETCH_S, Used(0, cpus, cpus, 100.0))


def test_minutes_that_processes_of_a_job_measured_apart_are_one() -> None:
    known = with_readings([], 1, 0, [reading(1), reading(2)])
    changed = with_readings(known, 1, 1, [reading(2), reading(3)])
    assert [[used.rank for used in one.processes] for one in changed] == [[0, 1], [1]]
    assert peaks_of([*known, *changed]).cpus == 2.0
    # What is told again changes nothing, and another attempt has its own.
    assert with_readings([*known, *changed], 1, 1, [reading(2)]) == changed[:1]
    assert len(with_readings(known, 2, 0, [reading(1)])[0].processes) == 1


def test_what_was_put_together_since_is_not_taken_apart_again() -> None:
    readings = [reading(number, cpus=number) for number in range(3 * MOST)]
    kept: list[SampleStretch] = []
    for one in readings:
        kept += with_readings(kept, 1, 0, [one])
        kept = thinned(kept) if len(kept) > MOST else kept
    changed = with_readings(kept, 1, 0, readings)
    assert {one.at for one in changed} <= {one.at for one in kept}


def test_minutes_of_before_the_last_known_one_are_taken_where_they_are_missing() -> None:
    last = with_readings([], 1, 0, [reading(100)])
    assert len(with_readings(last, 1, 0, [reading(number) for number in range(100)])) == 100
