"""Hours of the week: how they are written, and whether a minute is in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import UsageError
from towline.model.hours import DAY_MIN, DAYS, WEEK_MIN, parse_hours, told, until


def minute(day: str, clock: str) -> int:
    hours, _, minutes = clock.partition(":")
    return DAYS.index(day) * DAY_MIN + int(hours) * 60 + int(minutes)


def ends(text: str, day: str, clock: str) -> str | None:
    """When the hours around a moment end, in words."""
    now = minute(day, clock)
    end = until(parse_hours(text), now)
    return None if end is None else told(end, now)


@pytest.mark.parametrize(
    ("text", "day", "clock", "end"),
    [
        ("09:00-18:00", "sun", "09:00", "18:00"),
        ("09:00-18:00", "sun", "08:59", None),
        ("09:00-18:00", "sun", "18:00", None),
        ("9:00 - 18:00", "tue", "12:00", "18:00"),
        ("mon-fri 09:00-18:00", "fri", "17:59", "18:00"),
        ("mon-fri 09:00-18:00", "sat", "12:00", None),
        ("Mon-Fri 09:00-18:00", "mon", "12:00", "18:00"),
        ("fri-mon 09:00-18:00", "sun", "12:00", "18:00"),
        ("fri-mon 09:00-18:00", "wed", "12:00", None),
        ("22:00-06:00", "wed", "23:00", "06:00"),
        ("22:00-06:00", "wed", "05:59", "06:00"),
        ("22:00-06:00", "mon", "00:30", "06:00"),
        ("sun 22:00-06:00", "mon", "05:00", "06:00"),
        ("sun 22:00-06:00", "tue", "05:00", None),
        ("fri 22:00-06:00", "fri", "21:00", None),
        ("sat,sun", "sat", "00:00", "mon 00:00"),
        ("sat,sun", "sun", "12:00", "00:00"),
        ("sat-sun", "mon", "00:00", None),
        ("saturday 10:00-24:00", "sat", "23:59", "00:00"),
        ("sun,mon,wed", "sun", "01:00", "tue 00:00"),
        ("mon-sun", "wed", "01:00", "the configuration changes"),
        ("00:00-24:00", "wed", "01:00", "the configuration changes"),
    ],
)
def test_hours_are_in_force_from_their_first_minute_to_their_last(
    text: str, day: str, clock: str, end: str | None
) -> None:
    assert ends(text, day, clock) == end


def test_several_hours_that_meet_end_with_the_last() -> None:
    spans = parse_hours("09:00-12:00") + parse_hours("12:00-14:00") + parse_hours("11:00-13:00")
    assert until(spans, minute("thu", "10:00")) == minute("thu", "14:00")


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "9-18", "25:00-26:00", "09:60-10:00", "09:00", "09:00-", "moon 09:00-10:00"),
        *("mo", "mon- 09:00-10:00", "09:00-18:00 mon", "09:00-09:00", "24:00-06:00", "9:00-24:01"),
    ],
)
def test_what_is_no_hours_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_hours(text)
    assert "09:00-18:00" in caught.value.hint


@given(
    st.lists(st.tuples(st.integers(0, WEEK_MIN - 1), st.integers(1, DAY_MIN)), max_size=6),
    st.integers(0, WEEK_MIN - 1),
)
def test_hours_end_at_the_first_minute_that_is_in_none_of_them(
    given_spans: list[tuple[int, int]], now: int
) -> None:
    spans = tuple((first, first + length) for first, length in given_spans)
    inside = {minute % WEEK_MIN for first, last in spans for minute in range(first, last)}
    end = until(spans, now)
    assert (end is None) == (now not in inside)
    if end is not None:
        assert all(minute % WEEK_MIN in inside for minute in range(now, end))
        assert end == now + WEEK_MIN or end % WEEK_MIN not in inside
