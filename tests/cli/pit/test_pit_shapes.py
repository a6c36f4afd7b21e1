"""What `pit` prints: the shapes of the ancestor, byte for byte."""

from typing import Any

import pytest

from towline.cli.pit import shapes
from towline.cli.pit.joint import Chunks
from towline.cli.pit.version import sum_of_changes, without_credentials

HEAD = "   JOB   S SINCE        UC% UM% USER       TITLE                RESOURCE"
GPU = {"index": 0, "name": "GeForce GTX 1070", "alias": "gtx1070", "groups": []}


def a_job(number: int, state: str, **more: Any) -> dict[str, Any]:
    job = {"id": number, "state": state, "since": 0.0, "owner": "foo", "title": "a job"}
    return {**job, "request": "1:[8:txp]", "util_compute": 0, "util_memory": 0, **more}


def test_status_has_a_header_where_there_are_no_jobs() -> None:
    [line] = shapes.status_table({"running": [], "waiting": [], "done": []}, 0.0, None)
    assert line == HEAD + " " * 22 and len(line) == 64 + 30
    [line] = shapes.status_table({}, 0.0, 73)
    assert line == HEAD + " "
    assert len(shapes.status_table({}, 0.0, 120)[0]) == 120
    assert len(shapes.status_table({}, 0.0, 70)[0]) == 94


def test_status_rows_are_those_of_the_ancestor() -> None:
    now = 4 * 86400 + 21 * 3600 + 5 * 60 + 50.0
    running = a_job(4535, "running", util_compute=50, allocation=[["mlc1", [0, 1]]])
    waiting = a_job(4618, "queued", owner="baz", since=now - 20 * 3600 - 7 * 60 - 17)
    shown = shapes.status_table({"running": [running], "waiting": [waiting], "done": []}, now, None)
    assert [line.rstrip() for line in shown[1:]] == [
        "Running:",
        "  4535 RUN 04d 21:05:50  50   0 foo        a job                mlc1[cuda 0-1]",
        "Waiting:",
        "  4618 WAI 00d 20:07:17   0   0 baz        a job                1:[8:txp]",
    ]


def test_values_are_cut_to_their_columns_and_steer_no_terminal() -> None:
    odd = a_job(1234567, "done", title="\x1b[31m" + "t" * 30, owner="o" * 20, request="r" * 50)
    line = shapes.status_table({"done": [odd]}, 3.0, None)[2]
    assert len(line) == 94 and "\x1b" not in line and line.startswith("123456 FIN 00d 00:00:03 ")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (3, "00d 00:00:03"),
        (-1, "00d 00:00:00"),
        (99 * 86400, "99d 00:00:00"),
        (123.5 * 86400, "123d"),
    ],
)
def test_since(seconds: float, text: str) -> None:
    assert shapes.since(seconds) == text


@pytest.mark.parametrize(
    ("processes", "text"),
    [
        ([["n0", [0, 1]]], "n0[cuda 0-1]"),
        ([["n0", []]], "n0[]"),
        ([["n0", [0]], ["n0", [2, 3]], ["n1", [0]]], "n0[cuda 0,2-3] + n1[cuda 0]"),
        ([], ""),
    ],
)
def test_allocations(processes: list[Any], text: str) -> None:
    assert shapes.allocation(processes) == text


def test_a_user_and_an_administrator() -> None:
    user = {"name": "tilman", "fullname": "Tilman Kamp", "email": "t@lab.org", "groups": []}
    assert shapes.user_lines(user) == [
        "Username:         tilman",
        "Full name:        Tilman Kamp",
        "E-Mail address:   t@lab.org",
    ]
    more = {**user, "groups": ["a", "b"], "autoshare": ["a"], "administrator": True}
    assert shapes.user_lines(more)[3:] == [
        "Groups:           a b",
        "Auto share:       a",
        "Is administrator: yes",
    ]


def test_a_node_with_its_resources() -> None:
    second = {"index": 1, "name": "GeForce GTX 1070", "groups": ["students", "staff"]}
    node = {"name": "n0", "state": "online", "resources": [GPU, second]}
    assert "\n".join(shapes.node_lines(node)) == (
        "Node name: n0\n"
        "State:     ONLINE\n"
        "Resources: \n"
        '  0: "GeForce GTX 1070" aka "gtx1070" (cuda 0)\n'
        '  1: "GeForce GTX 1070" (cuda 1) - Groups: students staff'
    )


def test_a_job_as_its_owner_and_as_a_stranger_sees_it() -> None:
    waiting = a_job(7, "queued", position=3)
    assert shapes.job_lines(waiting) == [
        "Job number: 7",
        "Title:      a job",
        "Owner:      foo",
        "Resources:  1:[8:txp]",
        "State:      WAI (position 3)",
    ]
    changes = [{"state": "running", "at": 1544807101.0}, {"state": "done", "at": 1544807102.5}]
    ended = a_job(
        8, "failed", groups=["a"], error="exit code 3", origin="Git commit 12 from https://x",
        allocation=[["n0", [0]]], util_compute=50, changes=changes,
        processes=[{"group": 0, "process": 1, "exit_code": None, "signal": 9}],
    )  # fmt: skip
    assert "\n".join(shapes.job_lines(ended)) == (
        "Job number:    8\n"
        "Title:         a job\n"
        "Owner:         foo\n"
        "Groups:        a\n"
        'Error:         "exit code 3"\n'
        "Provisioning:  Git commit 12 from https://x\n"
        "Resources:     n0[cuda 0]\n"
        "Util. GPU:     50 %\n"
        "Util. memory:  0 %\n"
        "State:         FIN\n"
        "Processes:     \n"
        "  [0, 1]: Status code: 137\n"
        "State changes: \n"
        "  RUN: 2018-12-14T17:05:01.000Z\n"
        "  FIN: 2018-12-14T17:05:02.500Z"
    )


def test_jobs_have_a_date_and_no_captions() -> None:
    head, row = shapes.jobs_table([a_job(1, "done", since=1551391288.0)], None)
    assert head.startswith("   JOB   S DATE                     UC% UM% USER ")
    assert row.startswith("     1 FIN 2019-02-28T22:01:28.000Z   0   0 foo        a job ")


@pytest.mark.parametrize(
    ("value", "text"),
    [("x", "x"), (None, "undefined"), (["a", "b'"], "[ 'a', 'b\\'' ]"), ([], "[]"), (True, "true"),
     (3, "3"), ({"a": 1}, "{ a: 1 }")],
)  # fmt: skip
def test_values_are_printed_as_javascript_would(value: Any, text: str) -> None:
    assert shapes.raw_value(value) == text


def test_the_preamble_and_listings() -> None:
    assert shapes.preamble(190, "origin <https://x/y>", "ab" * 20, 0, "[2:gtx1070]") == [
        "Job number: 190",
        "Remote:     origin <https://x/y>",
        "Hash:       " + "ab" * 20,
        "Diff LoC:   0",
        'Resources:  "[2:gtx1070]"',
    ]
    entries = [{"name": "b", "kind": "file"}, {"name": "z", "kind": "dir"},
               {"name": "l", "kind": "link"}, {"name": "a", "kind": "file"}]  # fmt: skip
    assert shapes.listing("", {"kind": "dir", "entries": entries}) == ["D z", "F a", "F b"]
    assert shapes.listing("keep/x", {"kind": "file"}) == ["F keep/x"]


def test_credentials_of_a_remote_are_not_shown() -> None:
    assert without_credentials("https://user:pw@lab.org/x.git") == "https://lab.org/x.git"
    assert without_credentials("git@github.com:a/b.git") == "https://github.com/a/b.git"
    assert sum_of_changes(["3\t1\tfile", "-\t-\tbinary", ""]) == 4


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_reply_in_chunks_is_put_together_however_it_is_cut(size: int) -> None:
    reply = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n"
    )
    chunks = Chunks()
    found = b"".join(chunks.feed(reply[at : at + size]) for at in range(0, len(reply), size))
    assert (found, chunks.ended, chunks.refused) == (b"abcde", True, False)
    refused = Chunks()
    refused.feed(b"HTTP/1.1 404 Not Found\r\n\r\n")
    assert refused.ended and refused.refused
