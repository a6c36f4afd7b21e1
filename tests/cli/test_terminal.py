"""What reaches the terminal: nothing that steers it but Towline's own colours."""

import pytest

from cli.stub import Stub, answer, job, refusal, stream
from testbed.tow import Tow
from towline.cli.terminal import say

#: Sets the title, rings, clears the screen; the last two bytes are the one-byte form of ESC [.
EVIL = "evil: \x1b]0;OWNED\x07\x1b[2J\x9b31m\r\x7f"


@pytest.mark.parametrize("words", [("ls", "12"), ("cat", "12", "x"), ("show", "12")])
def test_errors_and_hints_from_a_machine_do_not_steer_the_terminal(
    tow: Tow, stub: Stub, words: tuple[str, ...]
) -> None:
    for route in ("GET /v1/jobs/12/files", "GET /v1/jobs/12/file", "GET /v1/jobs/12"):
        stub.on(route, refusal(f"{EVIL}\nsecond line", code="agent", hint=f"try {EVIL}", exit=1))
    told = tow(*words).stderr
    assert told.startswith("tow: evil: �]0;OWNED��[2J�31m��\nsecond line\n  try evil: ")
    assert not set(told) & set("\x1b\x07\x9b\r\x7f")


def test_an_exec_that_fails_over_there_does_not_steer_the_terminal(tow: Tow, stub: Stub) -> None:
    failing = {"error": {"code": "agent", "text": EVIL, "hint": EVIL}, "exit": 1}
    noted = {"note": EVIL}
    ended = {"end": {"exit_code": 1, "reason": EVIL}}
    stub.on("POST /v1/jobs/12/exec", stream(noted, ended), stream(noted, failing))
    for _ in range(2):
        told = tow("exec", "12", "x").stderr
        assert told.count("OWNED") >= 2 and not set(told) & set("\x1b\x07\x9b\r\x7f")


def test_what_a_command_itself_writes_stays_as_it_is(tow: Tow, stub: Stub) -> None:
    header = {"stream": "out", "group": 0, "process": 0, "label": "", "offset": 0}
    written = "\x1b[2J\tcolour\n"
    frames = {"job": job()}, (header, written.encode()), {"end": job(state="done")}
    stub.on("GET /v1/jobs/12/log", stream(*frames))
    assert tow("log", "12").stdout == written


def test_results_keep_our_colours_and_lose_everything_else(
    capfd: pytest.CaptureFixture[str],
) -> None:
    say(f"\x1b[31mred\x1b[0m 雪 {EVIL}\nnext")
    assert capfd.readouterr().out == "\x1b[31mred\x1b[0m 雪 evil: �]0;OWNED��[2J�31m��\nnext\n"


def test_a_names_control_characters_do_not_reach_the_terminal_in_any_list(
    tow: Tow, stub: Stub
) -> None:
    stub.on("GET /v1/forwards", answer({"forwards": [{"local": EVIL, "job": 1, "port": 2}]}))
    stub.on("POST /v1/jobs/stop", answer({"jobs": [{"id": EVIL, "state": "stopping"}]}))
    for words in (("forward", "--list"), ("stop", "12")):
        shown = tow(*words).stdout
        assert "OWNED" in shown and not set(shown) & set("\x1b\x07\x9b\r\x7f")
