"""Memory and time as people write and read them. Import-light: commands use it at start."""

from __future__ import annotations

from towline.errors import UsageError

#: More than any machine has; keeps sums far from the limits of integers elsewhere.
MOST_MEMORY_MB = 1 << 40
MOST_SECONDS = 100 * 365 * 86400.0

_MEMORY_EXAMPLES = "Write it like 512M, 10G or 1.5T; a plain number means MB."
_TIME_EXAMPLES = (
    "Write it like 90s, 10m, 2h, 1h30m, 3:00:00 or 2-00:00:00; a bare number is seconds."
)

_KB_PER = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3, "p": 1024**4}
_SECONDS_PER = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hr": 3600,
    "hour": 3600,
    "d": 86400,
    "day": 86400,
    "w": 604800,
    "week": 604800,
}


def parse_memory_mb(text: str) -> int:
    """An amount of memory in MB, rounded up."""
    value, unit = _split_number(text.strip())
    unit = unit.strip().lower()
    letter = unit[:1] or "m"
    if value is None or letter not in _KB_PER or unit[1:] not in ("", "b", "i", "ib"):
        raise UsageError(f"{shown(text)} is not an amount of memory", _MEMORY_EXAMPLES)
    exact = value * _KB_PER[letter] / 1024
    if exact <= 0:
        raise UsageError("an amount of memory must be more than zero", _MEMORY_EXAMPLES)
    if exact > MOST_MEMORY_MB:
        raise UsageError(f"{shown(text)} is more memory than any machine has", _MEMORY_EXAMPLES)
    return -int(-exact // 1)


def parse_duration_s(text: str) -> float:
    """A length of time in seconds."""
    stripped = text.strip()
    seconds = _clock(stripped) if ":" in stripped or "-" in stripped else _spelled(stripped)
    if seconds is None:
        raise UsageError(f"{shown(text)} is not a length of time", _TIME_EXAMPLES)
    if seconds <= 0:
        raise UsageError("a length of time must be more than zero", _TIME_EXAMPLES)
    if seconds > MOST_SECONDS:
        raise UsageError(f"{shown(text)} is longer than a hundred years", _TIME_EXAMPLES)
    return seconds


def parse_number(text: str) -> float | None:
    """A plain decimal number such as 4 or 0.5, or None: no sign, no exponent, no infinity."""
    whole, dot, part = text.strip().partition(".")
    digits = whole + part
    if not digits or not digits.isascii() or not digits.isdigit() or len(digits) > 30:
        return None
    return float(f"{whole or '0'}{dot}{part}")


def format_duration(seconds: float) -> str:
    """A length of time for people: its two largest units."""
    seconds = max(0.0, seconds)
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        size, name, part_size, part_name = 60, "min", 1, "s"
    elif whole < 86400:
        size, name, part_size, part_name = 3600, "h", 60, "min"
    else:
        size, name, part_size, part_name = 86400, "d", 3600, "h"
    count, rest = divmod(whole, size)
    part = rest // part_size
    return f"{count} {name} {part} {part_name}" if part else f"{count} {name}"


def format_memory(mb: float) -> str:
    """An amount of memory for people."""
    for size, name in ((1024**2, "TB"), (1024, "GB")):
        if mb >= size:
            return f"{mb / size:.1f}".removesuffix(".0") + f" {name}"
    return f"{mb:.0f} MB"


def shown(text: str, most: int = 40) -> str:
    """A user's text inside a message: quoted, on one line, not too long."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def _split_number(text: str) -> tuple[float | None, str]:
    end = 0
    while end < len(text) and text[end] in "0123456789.":
        end += 1
    return parse_number(text[:end]), text[end:]


def _spelled(text: str) -> float | None:
    """`90`, `90s`, `1h30m`, `2 hours`; None when it is none of these."""
    value = parse_number(text)
    if value is not None:
        return value
    total = 0.0
    last_size = float("inf")
    rest = text.lower()
    while rest:
        value, rest = _split_number(rest)
        rest = rest.lstrip()
        end = 0
        while end < len(rest) and rest[end].isalpha():
            end += 1
        unit, rest = rest[:end], rest[end:].lstrip()
        size = _SECONDS_PER.get(unit) or _SECONDS_PER.get(unit.removesuffix("s"))
        # Each unit once, from large to small: `30m1h` is more likely a slip than a wish.
        if value is None or size is None or size >= last_size:
            return None
        total += value * size
        last_size = size
    return total if text else None


def _clock(text: str) -> float | None:
    """`minutes:seconds`, `hours:minutes:seconds`, `days-hours[:minutes[:seconds]]`."""
    days, dash, rest = text.rpartition("-")
    words = rest.split(":")
    if len(words) > 3 or not all(word.isascii() and word.isdigit() for word in words):
        return None
    if dash and not (days.isascii() and days.isdigit()):
        return None
    if max(map(len, [days, *words])) > 9:
        return None
    numbers = [int(word) for word in words]
    if any(number > 59 for number in numbers[1:]):
        return None
    if dash:
        numbers = [*numbers, 0, 0][:3]
    else:
        numbers = [0, 0, *numbers][-3:]
    hours, minutes, seconds = numbers
    return float(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)
