"""How much memory a machine has and could give, from /proc/meminfo."""

from msgspec import Struct


class MemoryReading(Struct, frozen=True):
    total_mb: int
    available_mb: int


def parse_meminfo(text: str) -> MemoryReading | None:
    """None if the text is not what the kernel writes there."""
    kb: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            kb[name.strip()] = int(words[0])
    total = kb.get("MemTotal")
    available = kb.get("MemAvailable")
    if available is None and "MemFree" in kb:
        # Kernels before 3.14 do not estimate it.
        available = kb["MemFree"] + kb.get("Buffers", 0) + kb.get("Cached", 0)
    if not total or available is None:
        return None
    return MemoryReading(total // 1024, min(available, total) // 1024)
