"""Names of machines: what goes to ssh, and what must never reach it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.config.targets import split_target
from towline.errors import UsageError


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("gpu1", ("gpu1", None)),
        ("this", ("this", None)),
        ("me@gpu1", ("me@gpu1", None)),
        ("me@10.0.0.5:2222", ("me@10.0.0.5", 2222)),
        ("gpu1.example.org:22", ("gpu1.example.org", 22)),
        ("[::1]:22", ("::1", 22)),
        ("me@[fe80::1%eth0]:22", ("me@fe80::1%eth0", 22)),
        ("[::1]", ("::1", None)),
        ("fe80::1", ("fe80::1", None)),
        ("me@corp.com@gpu1", ("me@corp.com@gpu1", None)),
        ("ssh://me@gpu1:2222", ("me@gpu1", 2222)),
        ("ssh://gpu1", ("gpu1", None)),
    ],
)
def test_target_is_split(target: str, parts: tuple[str, int | None]) -> None:
    assert split_target(target) == parts


@pytest.mark.parametrize(
    "target",
    [
        "",
        "-oProxyCommand=x",
        "me@-oProxyCommand",
        "gpu 1",
        "gpu\n1",
        "gpu\x001",
        "gpu\u00a01",
        "`id`",
        "$(id)",
        "a;b",
        "me@",
        "@gpu1",
        "gpu1:",
        "gpu1:0",
        "gpu1:65536",
        "gpu1:22x",
        "gpu1:²",
        "[::1",
        "[::1]22",
        "[]:22",
        "a/b",
        "a/b@gpu1",
        "ssh://",
        "ssh://-oProxyCommand=x@gpu1",
        "ssh://-x@gpu1",
        "http://me@gpu1",
    ],
)
def test_what_cannot_be_a_machine_is_refused(target: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_target(target)
    assert "me@10.0.0.5:2222" in caught.value.hint


@given(st.text())
def test_what_passes_is_never_an_option_of_ssh(target: str) -> None:
    try:
        destination, port = split_target(target)
    except UsageError:
        return
    assert destination and not destination.startswith("-")
    assert not any(letter.isspace() or letter in "'`\"$;&<>|(){}" for letter in destination)
    assert port is None or 1 <= port <= 65535
