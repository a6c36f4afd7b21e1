"""Memory and time, as people write and read them."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import UsageError
from towline.model.units import format_duration, format_memory, parse_duration_s, parse_memory_mb


@pytest.mark.parametrize(
    ("text", "mb"),
    [
        ("10G", 10240),
        ("10g", 10240),
        ("10GB", 10240),
        ("10Gi", 10240),
        ("10 GiB", 10240),
        ("512M", 512),
        ("512", 512),
        ("1.5T", 1572864),
        ("2048K", 2),
        ("1K", 1),
        (".5G", 512),
        ("1P", 1 << 30),
    ],
)
def test_memory_is_read(text: str, mb: int) -> None:
    assert parse_memory_mb(text) == mb


@pytest.mark.parametrize(
    "text", ["", "G", "10X", "-1G", "1e3", "10GX", "1..5G", "nan", "٣G", "0", "9999999P"]
)
def test_wrong_memory_says_how_to_write_it(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_memory_mb(text)
    assert "10G" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("1.5", 1.5),
        ("10m", 600),
        ("10 min", 600),
        ("2h", 7200),
        ("2 hours", 7200),
        ("1h30m", 5400),
        ("1h 30m 5s", 5405),
        ("1.5h", 5400),
        ("2d", 172800),
        ("1w", 604800),
        ("3:00:00", 10800),
        ("05:30", 330),
        ("90:00", 5400),
        ("2-00:00:00", 172800),
        ("1-12", 129600),
    ],
)
def test_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h",
        "10x",
        "-5",
        "0",
        "0s",
        "1h1h",
        "30m1h",
        "1:60:00",
        "1:2:3:4",
        "1-",
        "-1:00",
        "a:b",
        "1 2",
        "9999999d",
        "²",
        "1e9999",
    ],
)
def test_wrong_duration_says_how_to_write_it(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration_s(text)
    assert "1h30m" in caught.value.hint


@given(st.one_of(st.text(), st.text(alphabet="0123456789.:-smhdGMKTiB ")))
def test_no_text_breaks_the_readers(text: str) -> None:
    for parse in (parse_memory_mb, parse_duration_s):
        try:
            assert parse(text) > 0
        except UsageError:
            pass


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0, "0.0 s"),
        (3.21, "3.2 s"),
        (59.94, "59.9 s"),
        (59.97, "1 min"),
        (250, "4 min 10 s"),
        (3599.6, "1 h"),
        (7500, "2 h 5 min"),
        (86400 * 3 + 3600 * 4 + 59, "3 d 4 h"),
        (86400 * 400, "400 d"),
    ],
)
def test_duration_is_written_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("mb", "text"),
    [(0, "0 MB"), (512, "512 MB"), (1024, "1 GB"), (1536, "1.5 GB"), (1 << 20, "1 TB")],
)
def test_memory_is_written_in_its_largest_unit(mb: int, text: str) -> None:
    assert format_memory(mb) == text


def test_units_and_paths_load_nothing_heavy() -> None:
    program = (
        "import sys; import towline.model.units, towline.config.paths;"
        "heavy = {'msgspec', 're', 'typing', 'pathlib', 'dataclasses', 'hashlib'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
