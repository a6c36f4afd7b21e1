"""nvidia-smi: what to ask it, and what its answers mean.

Whatever it says that is not understood is kept as raw text, with None for what is not known.
"""

from msgspec import Struct

GPU_COMMAND = (
    "nvidia-smi",
    "--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu",
    "--format=csv,noheader,nounits",
)
APPS_COMMAND = (
    "nvidia-smi",
    "--query-compute-apps=gpu_uuid,pid,used_memory",
    "--format=csv,noheader,nounits",
)


class GpuReading(Struct, frozen=True):
    """One line of `GPU_COMMAND`; `index` is None if the line is not about a GPU."""

    raw: str
    index: int | None = None
    uuid: str = ""
    model: str = ""
    mem_mb: int | None = None
    used_mb: int | None = None
    #: 0 to 1.
    util: float | None = None


class AppReading(Struct, frozen=True):
    """One line of `APPS_COMMAND`; `uuid` is empty if the line is not about a program."""

    raw: str
    uuid: str = ""
    pid: int | None = None
    used_mb: int | None = None


def parse_gpus(text: str) -> list[GpuReading]:
    """Every line as a reading."""
    return [_gpu(line.strip()) for line in text.splitlines() if line.strip()]


def parse_apps(text: str) -> list[AppReading]:
    """Every line as a reading."""
    return [_app(line.strip()) for line in text.splitlines() if line.strip()]


def _gpu(line: str) -> GpuReading:
    words = [word.strip() for word in line.split(",")]
    index = _whole(words[0])
    if len(words) < 6 or index is None:
        return GpuReading(line)
    total, used, util = (_whole(word) for word in words[-3:])
    return GpuReading(
        raw=line,
        index=index,
        uuid=_text(words[1]),
        # A comma in a name would be a part of it.
        model=_text(", ".join(words[2:-3])),
        mem_mb=total,
        used_mb=used,
        util=None if util is None else min(1.0, util / 100),
    )


def _app(line: str) -> AppReading:
    words = [word.strip() for word in line.split(",")]
    if len(words) != 3 or not words[0].startswith(("GPU-", "MIG-")):
        return AppReading(line)
    return AppReading(line, words[0], _whole(words[1]), _whole(words[2]))


def _whole(word: str) -> int | None:
    """A whole number, also with its unit behind it; None for `[N/A]` and the like."""
    digits = word.split(" ")[0] if word else ""
    known = digits.isascii() and digits.isdigit() and len(digits) < 12
    return int(digits) if known else None


def _text(word: str) -> str:
    return "" if word.startswith("[") else word
