"""What a machine says is taken as far as it has the shape and size that it should have."""

import math
from typing import Any

import msgspec
import pytest

from towline.agent.endings import read_ending, read_output
from towline.agent.messages import (
    Clock,
    check_answer,
    check_event,
    check_stream,
    read_error,
    read_hello,
    read_rank,
    read_record,
    readable,
)
from towline.errors import Nonsense
from towline.model.job import Attempt, Ending
from towline.model.machine import Slot

GOOD = {"code": 3, "signal": None, "cause": "", "text": "", "started": 1e9, "ended": 2e9}
DAMAGED = [
    {"code": "abc"},
    {"code": 1e30},
    {"code": 10**23},
    {"code": True},
    {**GOOD, "made": "x"},
    {**GOOD, "out_size": "9"},
    {**GOOD, "err_size": -1},
    {**GOOD, "signal": "x"},
    {**GOOD, "ended": math.inf},
    {**GOOD, "started": math.nan},
    {**GOOD, "cause": ["lost"]},
    {**GOOD, "cause": "a\nb"},
    {**GOOD, "text": {"a": 1}},
    {"code": None},
    {},
    [],
    None,
    0,
    "ended",
]


@pytest.mark.parametrize("body", DAMAGED)
def test_a_damaged_record_of_an_end_means_that_the_process_is_lost(body: Any) -> None:
    ending = read_ending(body, Clock())
    assert (ending.cause, ending.code) == ("lost", None)
    assert "damaged" in ending.text


def test_an_ending_is_read_as_its_supervisor_wrote_it() -> None:
    ending = read_ending({**GOOD, "made": 2, "out_size": 5, "cpu_s": 1.5}, Clock())
    assert ending == Ending(code=3, started=1e9, ended=2e9, made=2, out_size=5)


def test_what_older_agents_put_into_sentences_is_data() -> None:
    said = "the setup failed, so the command was not started: module load cuda"
    ending = read_ending({**GOOD, "cause": "setup", "text": said}, Clock())
    assert (ending.cause, ending.text) == ("setup", "module load cuda")
    used = {**GOOD, "cause": "oom", "text": "it used up to 2.0 GB", "max_rss_kb": 2 << 20}
    ending = read_ending(used, Clock())
    assert (ending.text, ending.peak_kb) == ("", 2 << 20)


def test_an_ending_with_odd_characters_can_be_written_down() -> None:
    ending = read_ending({**GOOD, "text": "f\udcff \ud800 \0 " + "x" * 100_000}, Clock())
    assert ending.text.startswith("f\ufffd \ufffd \ufffd x")
    assert len(ending.text) < 3000
    attempt = Attempt(1, (Slot("gpu1"),), endings={0: ending})
    assert msgspec.json.decode(msgspec.json.encode(attempt), type=Attempt) == attempt


@pytest.mark.parametrize(
    "hello",
    [
        {},
        {"time": "noon", "root": "/x"},
        {"time": 1.0},
        {"time": 1.0, "root": ["/x"]},
        {"time": 1.0, "root": "/x", "cpus": 1e30},
        {"time": 1.0, "root": "/x", "hostname": 5},
    ],
)
def test_a_greeting_of_another_shape_is_not_believed(hello: dict[str, Any]) -> None:
    with pytest.raises(Nonsense, match="greeting"):
        read_hello(hello)


def test_of_a_greeting_only_what_is_known_is_kept() -> None:
    said = {"event": "hello", "time": 1.0, "root": "/x", "hostname": "n\udc80", "odd": "x" * 10}
    hello = read_hello({**said, "identity": {"host": "n1", "pidns": 4026531836}})
    assert hello["hostname"] == "n\ufffd"
    assert hello["identity"] == {"host": "n1", "pidns": 4026531836}
    assert "odd" not in hello


@pytest.mark.parametrize(
    ("op", "answer"),
    [
        ("probe", {}),
        ("probe", {"raw": {"jobs": [1]}}),
        ("observe", {"states": []}),
        ("observe", {"states": {"k": {"state": "unknown", "\ud800": 1}}}),
        ("observe", {"states": {"k": {"state": "dancing"}}}),
        ("observe", {"states": {"k": "running"}}),
        ("read", {"eof": "no", "size": 3}),
        ("read", {"size": 2**70, "eof": False}),
        ("free_port", {"port": 0}),
        ("missing", {"missing": ["../../etc/passwd"]}),
        ("changed", {"files": [{"name": "a", "kind": "file", "blob": "ab" * 32}]}),
        ("changed", {"files": [{"name": "a", "kind": "file", "mode": -1}]}),
        ("call", {"code": 0, "out": 5, "err": ""}),
        ("services", {"services": {"tb": {"port": "80"}}}),
    ],
)
def test_an_answer_of_another_shape_is_not_believed(op: str, answer: dict[str, Any]) -> None:
    with pytest.raises(Nonsense, match=op):
        check_answer(op, answer)


@pytest.mark.parametrize(
    "event",
    [
        {"event": "jobs", "held": "abc"},
        {"event": "jobs", "held": [[1]]},
        {"event": "jobs", "started": [["k"]]},
        {"event": "jobs", "ended": [{}]},
        {"event": "probe"},
        {"event": "handed", "news": [1]},
    ],
)
def test_an_event_of_another_shape_is_not_believed(event: dict[str, Any]) -> None:
    with pytest.raises(Nonsense):
        check_event(event)


def test_an_event_is_believed_though_the_record_of_one_job_in_it_is_damaged() -> None:
    check_event({"event": "jobs", "started": [["k", 1, "now"]], "ended": [["k", {"code": "x"}]]})


def test_a_time_that_is_none_counts_as_not_known() -> None:
    clock = Clock()
    assert [clock.here(at) for at in ("now", None, -1, math.nan, [], 5.0)] == [0, 0, 0, 0, 0, 5]


def test_a_stream_is_held_to_what_streams_say() -> None:
    with pytest.raises(Nonsense):
        check_stream({"stream": 1, "credit": "much"})
    with pytest.raises(Nonsense):
        check_stream({"stream": [1]})


def test_a_refusal_is_told_in_words_that_can_be_kept() -> None:
    error = read_error({"code": "outside", "text": "no \udcff" + "x" * 9999}, "gpu1")
    assert error.code == "outside"
    assert error.text.startswith("gpu1: no \ufffdx")
    assert len(error.text) < 3000
    with pytest.raises(Nonsense):
        read_error({"text": 5}, "gpu1")


def test_what_a_job_printed_is_two_texts_or_nothing() -> None:
    assert read_output({"said": ["a\xff", ""]}) == (b"a\xff", b"")
    for odd in ({"said": ["a"]}, {"said": [1, 2]}, {"said": "ab"}, {}, None, 5):
        assert read_output(odd) is None


def test_damaged_files_of_a_handed_over_attempt_say_nothing() -> None:
    assert read_rank({"state": "running", "run": "x"}).state == "waiting"
    assert read_rank({"state": "running", "run": 2, "node": "n\udc80"}).node == "n\ufffd"
    assert read_rank([]).run is None
    assert read_record({"claim": 5}).claim == ""
    assert read_record({"array": ["a", "b"]}).array is None
    assert read_record({"array": ["a", 3], "ticket": "7\n"}).array == ("a", 3)


def test_a_readable_text_is_left_as_it_is() -> None:
    assert readable("exit code 3 · naïve ✓") == "exit code 3 · naïve ✓"
