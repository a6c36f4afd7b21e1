"""`tow sweep`: every combination of values, packed, and what came of each."""

from cli.stub import Stub, answer, batch, job
from testbed.tow import Tow

SUBMIT = "POST /v1/batches"


def test_sweep_is_a_batch_of_every_combination(tow: Tow, stub: Stub) -> None:
    stub.on(SUBMIT, answer({"batch": batch("sweep")}))
    words = ("-c", "cedar", "--gpus", "4", "--pack", "4", "--stagger", "5s", "-d")
    axes = ("lr=0.1,0.01", "seed=range(2)")
    done = tow("sweep", *words, *axes, "--", "train", "--lr", "{lr}", "{seed}")
    assert done.stdout == "batch sweep\n", done.stderr
    (asked,) = stub.asked_of(SUBMIT)
    assert asked.json["name"] == "sweep"
    assert asked.json["base"]["pack"] == {"parallel": 4, "lines": 0, "stagger_s": 5.0}
    assert asked.json["base"]["gpus"] == "4"
    assert [line["argv"][2:] for line in asked.json["lines"]] == [
        ["0.1", "0"], ["0.1", "1"], ["0.01", "0"], ["0.01", "1"],
    ]  # fmt: skip
    assert asked.json["lines"][3]["title"] == "lr=0.01 seed=1"


def test_what_is_missing_is_said_and_nothing_is_submitted(tow: Tow, stub: Stub) -> None:
    for words, told in {
        (): "what varies?",
        ("lr=1,2",): "which command?",
        ("lr=range(0)", "--", "train", "{lr}"): "no numbers",
        ("lr=1", "--", "train"): "does not use `lr`",
        ("lr=1", "--name", "all", "--", "train", "{lr}"): "cannot be called",
    }.items():
        done = tow("sweep", *words)
        assert done.returncode == 2, done
        assert told in done.stderr
    assert stub.asked_of(SUBMIT) == []


def test_table_has_every_run_with_its_values_and_end(tow: Tow, stub: Stub) -> None:
    ran = {"started": 100.0, "ended": 160.0, "machines": ["n4"]}
    jobs = [
        job(13, line=2, title="lr=0.01", state="failed", exit_code=3, reason="exit code 3", **ran),
        job(12, line=1, title="lr=0.1", state="done", exit_code=0, **ran),
    ]
    stub.on("GET /v1/batches/sweep", answer({"batch": batch("sweep"), "jobs": jobs}))
    first, second, third = tow("sweep", "table", "sweep").stdout.splitlines()
    assert first.split() == ["RUN", "VALUES", "STATE", "TIME", "MACHINE", "EXIT", "JOB", "REASON"]
    assert second.split() == ["1", "lr=0.1", "done", "1", "min", "n4", "0", "12"]
    assert third.split()[:3] == ["2", "lr=0.01", "failed"]
    assert third.endswith("exit code 3")
    runs = tow.json("sweep", "table", "sweep")["runs"]
    assert [(run["run"], run["exit_code"], run["seconds"]) for run in runs] == [
        (1, 0, 60.0),
        (2, 3, 60.0),
    ]


def test_what_is_done_with_a_sweep_is_done_with_its_batch(tow: Tow, stub: Stub) -> None:
    view = batch("sweep", done=1)
    stub.on("POST /v1/batches/sweep/retry", answer({"batch": view, "retried": 2}))
    stub.on("GET /v1/batches/sweep", answer({"batch": view, "jobs": []}))
    assert "2 jobs again" in tow("sweep", "retry", "sweep").stdout
    assert tow("sweep", "status", "sweep").stdout.startswith("batch sweep")
