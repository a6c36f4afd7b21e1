"""Requests that no client of ours sends are answered in words, never by a failure of the Engine."""

from pathlib import Path
from typing import Any

import pytest

from e2e.api import ask
from testbed.tow import Tow
from towline.server import peers

HUGE = 2**70
DEEP = b'{"jobs":' + b"[" * 100_000


def test_odd_requests_are_the_senders_to_mend(tow: Tow, tow_home: Path) -> None:
    assert tow("run", "true").returncode == 0
    odd: list[tuple[str, str, Any]] = [
        ("GET", f"/v1/jobs/{HUGE}", None),
        ("GET", f"/v1/jobs?limit={HUGE}", None),
        ("GET", f"/v1/jobs/{HUGE}/why", None),
        ("POST", "/v1/jobs/stop", {"ids": [HUGE]}),
        ("PUT", "/v1/jobs/1/file?path=a&mode=zzz", {}),
        ("PUT", "/v1/jobs/1/file?path=a&mode=-5", {}),
        ("POST", "/v1/jobs", {"jobs": [{"argv": ["\ud800"], "cwd": str(tow.folder)}]}),
        ("POST", "/v1/jobs", {"jobs": [{"argv": ["true"], "cwd": "/a\0b"}]}),
        ("POST", "/v1/snapshots/prune", {"cwd": "/a\0b"}),
        ("POST", "/v1/jobs/1/exec", {"argv": ["true"], "process": -5}),
    ]
    for method, target, body in odd:
        status, answer = ask(tow_home, method, target, body)
        assert status < 500, (target, body, answer)
        assert isinstance(answer, dict), (target, answer)
    status, answer = ask(tow_home, "POST", "/v1/jobs", raw=DEEP)
    assert (status, answer["error"]["code"]) == (400, "usage")
    assert "nested too deeply" in answer["error"]["text"]
    assert tow("run", "true").returncode == 0


def test_a_uid_without_a_name_is_called_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(peers.getpass, "getuser", nobody)
    assert peers.user_name().isdigit()
