"""`tow status`: what runs is always there, and 80 columns are enough to read it."""

import argparse
import json
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cli.stub import Stub, answer, batch, job, refusal
from testbed.tow import Tow
from towline.cli.commands import status
from towline.cli.commands.status import COLUMNS, fewest, rows, watched
from towline.cli.terminal.table import Column, cut, fitted, plain_table, wrapped

OPTIONS = argparse.Namespace(cluster=None, state=None)


def jobs(*views: dict[str, Any], left_out: int = 0) -> Any:
    return answer({"jobs": list(views), "left_out": left_out})


def found(*views: dict[str, Any], batches: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"jobs": list(views), "batches": list(batches), "left_out": 0}


def test_what_is_left_out_is_counted_and_said_how_to_see(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs", jobs(job(12), left_out=30))
    done = tow("status", "-c", "my lab")
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == "… and 30 more: tow status --all -c 'my lab'\n"
    assert tow.json("status")["left_out"] == 30


def test_n_limits_jobs_and_batches_alike(tow: Tow, stub: Stub) -> None:
    old = [batch(f"b{n}", done=4, first=n) for n in range(1, 9)]
    stub.on("GET /v1/batches", answer({"batches": old}))
    stub.on("GET /v1/jobs", jobs(job(20, "done"), job(21), left_out=2))
    shown = tow.json("status", "-n", "3")
    assert [one["id"] for one in shown["jobs"]] == [20, 21]
    assert [one["name"] for one in shown["batches"]] == ["b8"]
    assert shown["left_out"] == 2 + 7


def test_everything_that_is_active_is_shown_and_a_few_that_ended() -> None:
    waiting = [job(number, "queued") for number in range(50, 110)]
    ended = [job(number, "done") for number in range(2, 32)]
    running = batch("b", count=4, running=4, first=1)
    shown = fewest(found(*ended, *waiting, batches=(running,)), None)
    assert [one["id"] for one in shown["jobs"]] == [27, 28, 29, 30, 31, *range(50, 110)]
    assert shown["batches"] == [running] and shown["left_out"] == 25


def test_a_state_nobody_is_in_is_said_and_one_that_is_none_refused(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs", jobs(), jobs(), refusal("there is no state 'runing'", hint="one of: x"))
    assert tow("status", "--state", "queued").stdout == "no job is queued\n"
    assert tow("status", "-c", "lab", "--state", "done").stdout == "no job of lab is done\n"
    done = tow("status", "--state", "runing")
    assert (done.returncode, done.stderr) == (2, "tow: there is no state 'runing'\n  one of: x\n")


@pytest.mark.parametrize("number", ["-1", "0", "x", "99999999999999999999"])
def test_a_number_of_rows_that_is_none_is_refused(tow: Tow, stub: Stub, number: str) -> None:
    done = tow("status", "-n", number)
    assert done.returncode == 2 and "from 1 on" in done.stderr


def test_names_that_only_the_engine_needs_do_not_show(tow: Tow, stub: Stub) -> None:
    there = job(12, "queued", cluster="slurm:me@cedar", machines=["slurm:me@cedar"])
    stub.on("GET /v1/jobs", jobs(job(11, cluster="ad-hoc:aee77262"), there))
    lines = tow("status").stdout.splitlines()
    assert "ad hoc    gpu1" in lines[1] and "train  me@cedar  " in lines[2]
    assert "ad-hoc:" not in lines[1] and "slurm:" not in lines[2]


LONG = "python train.py --lr 0.01 --model resnet50"
WHY = "number 3 of 17 that wait in lab; it is next, and gpu1 is kept free for it"


def table(width: int, **how: Any) -> list[str]:
    now = time.time()
    ended = {"started": now - 4000, "ended": now - 400}
    views = [
        job(12344, "failed", title=LONG, machines=["gpu1", "gpu2"], exit_code=3, **ended),
        job(12345, "stopping", title=LONG, machines=["gpu1"], started=now - 9, reason=WHY),
        job(
            12346,
            "queued",
            title="短い題名" * 10,
            machines=[],
            started=None,
            submitted=now,
            reason=WHY,
        ),
    ]
    shown = rows(found(*views), now)
    lines = fitted(COLUMNS, shown, width, **how)
    assert all(sum(2 if c > "\u2e80" else 1 for c in line) <= width for line in lines)
    return lines


@pytest.mark.parametrize("width", [50, 60, 80, 100, 120])
def test_job_state_title_and_reason_can_be_read_at_any_width(width: int) -> None:
    lines = table(width)
    heads = lines[0].split()
    assert [name for name in heads if name in ("JOB", "STATE", "TITLE", "REASON")] == [
        "JOB",
        "STATE",
        "TITLE",
        "REASON",
    ]
    firsts = [line.split()[:3] for line in lines if line.startswith("1234")]
    assert [words[:2] for words in firsts] == [
        ["12344", "failed"],
        ["12345", "stopping"],
        ["12346", "queued"],
    ]
    assert all(words[2].startswith(("python", "短い")) for words in firsts)
    assert "exit code 3" in lines[1]
    reason = "".join(line[lines[0].index("REASON") :] + " " for line in lines[2:-1])
    assert "kept free" in " ".join(reason.split())


def test_clusters_and_machines_go_first_then_ages_then_titles_are_cut() -> None:
    assert (
        "CLUSTER" in table(160)[0] and "6 min ago" in table(160)[1] and LONG[:29] in table(160)[1]
    )
    assert "MACHINES" in table(125)[0] and "CLUSTER" not in table(125)[0]
    at_80 = table(80)
    assert "MACHINES" not in at_80[0] and "TIME" in at_80[0] and "ago" not in at_80[1]
    assert "1 h" in at_80[1] and "TIME" not in table(45)[0]


def test_watching_shows_what_runs_on_however_small_a_screen() -> None:
    waiting = [job(number, "queued", reason=WHY) for number in range(100, 160)]
    ended = [job(number, "done") for number in range(160, 200)]
    lines = watched(found(job(7), *waiting, *ended), OPTIONS, 60, 12)
    assert len(lines) == 11 and lines[1].startswith("7 ") and "running" in lines[1]
    assert all(len(line) <= 60 for line in lines)
    assert lines[-1] == "… and 92 more: tow status --all"


def test_watching_nothing_says_so() -> None:
    assert watched(found(), OPTIONS, 80, 24) == ["no jobs yet: tow run COMMAND starts one"]


def test_words_are_broken_only_where_one_is_too_long() -> None:
    assert wrapped("one two three", 8) == ["one two", "three"]
    assert wrapped("a abcdefghij", 4) == ["a", "abcd", "efgh", "ij"]
    assert wrapped("", 4) == [""] and wrapped("雪雪雪", 4) == ["雪雪", "雪"]
    assert cut("abcdef", 4) == "abc…" and cut("雪雪雪", 4) == "雪…"


def test_a_column_that_may_not_be_cut_is_whole_in_the_narrowest_table() -> None:
    columns = [Column("NUMBER"), Column("WORDS", least=5)]
    lines = fitted(columns, [["1234567890", "some words"]], 14)
    assert [line.split()[0] for line in lines[:2]] == ["NUMBER", "1234567890"]
    assert plain_table(columns, [["1", "a b"]]) == "NUMBER  WORDS\n1       a b"


class Journal:
    """An Engine whose journal and jobs a test decides on; it is looked at for so many seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: int, events: int) -> None:
        self.asked = 0
        self.seconds = seconds
        self.was_asked, self.listened, self.over = (threading.Event() for _ in range(3))

        def told(session: object, since: int) -> Iterator[object]:
            assert since == 41
            assert self.was_asked.wait(60)
            yield from range(events)
            self.listened.set()
            self.over.wait(60)

        monkeypatch.setattr("towline.client.news.events", told)
        monkeypatch.setattr("towline.client.news.seq_now", lambda session: 41)
        monkeypatch.setattr(status, "open_for", lambda options: self)
        monkeypatch.setattr(status, "time", SimpleNamespace(time=time.time, sleep=self.sleep))

    def sleep(self, seconds: float) -> None:
        assert self.listened.wait(60)
        self.seconds -= 1
        if not self.seconds:
            self.over.set()
            raise KeyboardInterrupt

    def call(self, method: str, target: str) -> dict[str, Any]:
        if target.startswith("/v1/batches"):
            return {"batches": []}
        self.asked += 1
        self.was_asked.set()
        return {"jobs": [job(self.asked)]}


def test_watching_asks_again_only_when_something_happened(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("towline.client.news.REFRESH_S", 1e9)
    quiet = Journal(monkeypatch, seconds=50, events=0)
    assert status.main(["--watch", "--json"]) == 0
    assert quiet.asked == 1
    # Whatever happens between two looks is one reason to look, not many.
    busy = Journal(monkeypatch, seconds=50, events=1000)
    assert status.main(["--watch", "--json"]) == 0
    assert busy.asked == 2
    shown = [json.loads(line)["jobs"][0]["id"] for line in capfd.readouterr().out.splitlines()]
    assert shown == [1, 1, 2]


def test_watching_looks_again_at_times_though_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("towline.client.news.REFRESH_S", 0.0)
    engine = Journal(monkeypatch, seconds=5, events=0)
    assert status.main(["--watch", "--json"]) == 0
    assert engine.asked == 5


def test_a_batch_that_waits_for_others_says_for_which() -> None:
    awaited = {"when": "ok", "job": 11, "batch": "", "state": "running"}
    held = batch(queued=4, waits_for=[awaited], why="waits for job 11 (running)")
    [row] = rows(found(batches=(held,)), now=1020.0)
    assert (row[1][0], row[-1]) == ("waiting", "waits for job 11 (running)")
