"""What happens is told to programs as it happens, and can be read again later."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from e2e.api import ask
from e2e.jobs import submit, wait_for
from testbed.tow import Tow

pytestmark = pytest.mark.slow


def read(home: Path, target: str) -> list[dict[str, Any]]:
    """The events that there are by now."""
    status, body = ask(home, "GET", target + "&follow=0")
    assert status == 200
    return parse(body)


def parse(body: bytes) -> list[dict[str, Any]]:
    lines = body.decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def test_the_life_of_a_job_can_be_read_and_gone_on_with(tow: Tow, tow_home: Path) -> None:
    assert tow("run", "sh", "-c", "exit 3").returncode == 3
    events = read(tow_home, "/v1/events?since=0&job=1")
    kinds = [event["kind"] for event in events]
    assert kinds == ["submitted", "placed", "running", "ended"]
    assert [event["seq"] for event in events] == sorted({event["seq"] for event in events})
    last = events[-1]
    assert last["data"]["state"] == "failed" and last["data"]["exit_code"] == 3
    assert last["text"] == "failed: exit code 3" and last["attempt"] == 1
    assert read(tow_home, f"/v1/events?since={events[1]['seq']}&job=1") == events[2:]


def test_a_listener_hears_of_a_job_while_it_runs(tow: Tow, tow_home: Path) -> None:
    assert tow("run", "true").returncode == 0
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(60)
        listener.connect(str(tow_home / "engine.sock"))
        listener.sendall(b"GET /v1/events HTTP/1.1\r\nHost: tow\r\n\r\n")
        heard = b""
        while b": towline" not in heard:
            heard += listener.recv(65536)
        number = submit(tow, "sleep", "60")
        wait_for(tow, number, "running")
        assert tow("stop", str(number)).returncode == 0
        while b"event: ended" not in heard:
            heard += listener.recv(65536)
    kinds = [event["kind"] for event in parse(heard) if event["job"] == number]
    assert kinds[:3] == ["submitted", "placed", "running"] and "stop_asked" in kinds


@pytest.mark.parametrize(
    "target", ["/v1/events?since=x", "/v1/events?job=999", "/v1/events?batch=none"]
)
def test_what_is_not_there_is_told(tow: Tow, tow_home: Path, target: str) -> None:
    assert tow("run", "true").returncode == 0
    status, body = ask(tow_home, "GET", target)
    assert status in (400, 404) and body["error"]["text"]
