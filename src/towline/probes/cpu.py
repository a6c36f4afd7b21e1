"""How busy the CPUs are, from two looks at /proc/stat."""

#: The kernel counts in hundredths of a second on every platform Linux programs see.
USER_HZ = 100
#: user nice system idle iowait irq softirq steal; guest time is part of user time already.
_IDLE = (3, 4)
_COUNTED = 8


def busy_cpus(before: str, after: str, seconds: float) -> float | None:
    """CPUs' worth of work between two `cpu ...` lines, or None if that cannot be told."""
    ticks_before, ticks_after = _busy_ticks(before), _busy_ticks(after)
    if ticks_before is None or ticks_after is None or seconds <= 0:
        return None
    ticks = ticks_after - ticks_before
    # Counters that go back: the machine restarted in between.
    return ticks / USER_HZ / seconds if ticks >= 0 else None


def load(loadavg: str) -> float | None:
    """The load average over one minute."""
    try:
        return float(loadavg.split()[0])
    except (ValueError, IndexError):
        return None


def _busy_ticks(line: str) -> int | None:
    words = line.split()
    if len(words) < 5 or words[0] != "cpu":
        return None
    try:
        ticks = [int(word) for word in words[1 : _COUNTED + 1]]
    except ValueError:
        return None
    return sum(tick for place, tick in enumerate(ticks) if place not in _IDLE)
