"""Hours of the week as people write them: `09:00-18:00`, `mon-fri 09:00-18:00`, `sat,sun`."""

import re

from towline.errors import UsageError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MIN = 24 * 60
WEEK_MIN = 7 * DAY_MIN

#: From (inclusive) to (exclusive), in minutes since Monday 00:00; one over Sunday night ends
#: beyond the week.
Span = tuple[int, int]

_TIMES = re.compile(r"(\d{1,2}):(\d\d)\s*-\s*(\d{1,2}):(\d\d)\Z")
_EXAMPLES = "Write it like 09:00-18:00, mon-fri 09:00-18:00, 22:00-06:00 or sat,sun."


def parse_hours(text: str) -> tuple[Span, ...]:
    """The spans of the week that a text names; every day without days, all day without times."""
    words = text.strip().lower()
    found = re.match(r"([a-z][a-z,\s-]*?)?\s*(\d.*)?\Z", words)
    if not words or found is None:
        raise _wrong(text)
    days = _days(found[1], text) if found[1] else list(range(7))
    start, end = _times(found[2], text) if found[2] else (0, DAY_MIN)
    return tuple((day * DAY_MIN + start, day * DAY_MIN + end) for day in days)


def until(spans: tuple[Span, ...], minute: int) -> int | None:
    """The minute of the week at which the spans around a minute end; None if it is in none.

    An end beyond the week is in the next one; spans that never end give a week from `minute`.
    """
    end = minute
    while end < minute + WEEK_MIN:
        later = max((last for last in _ends(spans, end) if last > end), default=None)
        if later is None:
            break
        end = later
    return None if end == minute else min(end, minute + WEEK_MIN)


def told(end: int, minute: int) -> str:
    """`18:00`, or `mon 08:00` if that is not before the next midnight."""
    if end >= minute + WEEK_MIN:
        return "the configuration changes"
    day, rest = divmod(end % WEEK_MIN, DAY_MIN)
    time = f"{rest // 60:02}:{rest % 60:02}"
    return time if end - minute < DAY_MIN else f"{DAYS[day]} {time}"


def _ends(spans: tuple[Span, ...], minute: int) -> list[int]:
    """The ends of all spans around a minute, of this week or the one before."""
    found = []
    for first, last in spans:
        for week in range(minute // WEEK_MIN - 1, minute // WEEK_MIN + 1):
            shift = week * WEEK_MIN
            if first + shift <= minute < last + shift:
                found.append(last + shift)
    return found


def _days(text: str, whole: str) -> list[int]:
    found: list[int] = []
    for part in re.split(r"\s*,\s*|\s+", re.sub(r"\s*-\s*", "-", text.strip())):
        first, dash, last = part.partition("-")
        if not _is_day(first) or (dash and not _is_day(last)):
            raise _wrong(whole)
        start = DAYS.index(first[:3])
        count = (DAYS.index(last[:3]) - start) % 7 + 1 if dash else 1
        found += [(start + number) % 7 for number in range(count)]
    return sorted(set(found))


def _is_day(word: str) -> bool:
    names = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    return len(word) >= 3 and any(name.startswith(word) for name in names)


def _times(text: str, whole: str) -> tuple[int, int]:
    found = _TIMES.match(text)
    if found is None:
        raise _wrong(whole)
    hour, minute, last_hour, last_minute = map(int, found.groups())
    start, end = hour * 60 + minute, last_hour * 60 + last_minute
    if max(minute, last_minute) > 59 or start >= DAY_MIN or end > DAY_MIN:
        raise _wrong(whole)
    if start == end:
        raise UsageError(f"{whole!r} begins and ends at the same minute", _EXAMPLES)
    return start, end if end > start else end + DAY_MIN


def _wrong(text: str) -> UsageError:
    return UsageError(f"{text!r} are no hours of a day or week", _EXAMPLES)
