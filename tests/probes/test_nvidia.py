"""What nvidia-smi says, line by line."""

import pytest

from towline.probes.cpu import busy_cpus, load
from towline.probes.memory import MemoryReading, parse_meminfo
from towline.probes.nvidia import (
    APPS_COMMAND,
    GPU_COMMAND,
    AppReading,
    GpuReading,
    parse_apps,
    parse_gpus,
)


def test_commands_ask_for_bare_numbers() -> None:
    assert GPU_COMMAND[-1] == APPS_COMMAND[-1] == "--format=csv,noheader,nounits"


@pytest.mark.parametrize(
    ("line", "reading"),
    [
        (
            "0, GPU-1a, Tesla K80, 11441, 63, 7",
            GpuReading("", 0, "GPU-1a", "Tesla K80", 11441, 63, 0.07),
        ),
        (
            "3, GPU-1a, Odd, Name, 11441 MiB, 63 MiB, 7 %",
            GpuReading("", 3, "GPU-1a", "Odd, Name", 11441, 63, 0.07),
        ),
        (
            "1, GPU-2b, NVIDIA A100, 40960, 19, [N/A]",
            GpuReading("", 1, "GPU-2b", "NVIDIA A100", 40960, 19, None),
        ),
        (
            "1, [Unknown Error], [GPU is lost], [Not Supported], [Not Supported], 900",
            GpuReading("", 1, "", "", None, None, 1.0),
        ),
        ("  MIG 1g.5gb Device 0: (UUID: MIG-3c)", GpuReading("")),
        ("NVIDIA-SMI has failed because, you know, it could not", GpuReading("")),
        (",,,,,", GpuReading("")),
    ],
)
def test_gpu_line(line: str, reading: GpuReading) -> None:
    (found,) = parse_gpus(line + "\n\n")
    assert found.raw == line.strip()
    assert found == GpuReading(
        found.raw,
        reading.index,
        reading.uuid,
        reading.model,
        reading.mem_mb,
        reading.used_mb,
        reading.util,
    )


@pytest.mark.parametrize(
    ("line", "uuid", "pid", "used_mb"),
    [
        ("GPU-1a, 4242, 3090", "GPU-1a", 4242, 3090),
        ("GPU-1a, 4242, [N/A]", "GPU-1a", 4242, None),
        ("MIG-1a, [Insufficient Permissions], 17 MiB", "MIG-1a", None, 17),
        ("No running processes found", "", None, None),
    ],
)
def test_app_line(line: str, uuid: str, pid: int | None, used_mb: int | None) -> None:
    assert parse_apps(line) == [AppReading(line, uuid, pid, used_mb)]


def test_busy_cpus_leave_out_idle_and_waiting() -> None:
    assert busy_cpus("cpu  100 0 0 0 0", "cpu  300 100 100 999 999", 2.0) == 2.0


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        ("", "cpu 1 2 3 4", 1.0),
        ("cpu 1 2 3 4", "cpu x 2 3 4", 1.0),
        ("cpu 1 2 3 4", "cpu 1 2 3 4", 0.0),
        ("cpu 9 9 9 9", "cpu 1 2 3 4", 1.0),
        ("cpu0 1 2 3 4", "cpu0 1 2 3 4", 1.0),
    ],
)
def test_busy_cpus_are_unknown(before: str, after: str, seconds: float) -> None:
    assert busy_cpus(before, after, seconds) is None


def test_load_average() -> None:
    assert load("1.50 1.0 0.5 1/2 3") == 1.5
    assert load("") is None


def test_memory() -> None:
    assert parse_meminfo("MemTotal: 4096 kB\nMemAvailable: 1024 kB\n") == MemoryReading(4, 1)
    assert parse_meminfo("MemTotal: 4096 kB\n") is None
    assert parse_meminfo("MemTotal: lots\nMemFree: 3 kB\n") is None
