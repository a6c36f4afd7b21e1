"""The commands that look, stop, retry and explain: what they ask, what they print."""

import json
import time
from typing import Any

from cli.stub import Stub, answer, job, refusal, stream
from testbed.tow import Tow
from towline.cli.terminal.machine_table import folded


def jobs(*views: dict[str, Any]) -> Any:
    return answer({"jobs": list(views)})


def test_status_in_a_pipe_is_plain_aligned_text(tow: Tow, stub: Stub) -> None:
    now = time.time()
    failed = job(13, "failed", exit_code=3, started=now - 200, ended=now - 190, title="雪 x")
    waiting = job(14, "queued", machines=[], started=None, submitted=now - 90, reason="lab is full")
    stub.on("GET /v1/jobs", jobs(failed, waiting))
    lines = tow("status").stdout.splitlines()
    assert lines[0].split() == ["JOB", "STATE", "TITLE", "CLUSTER", "MACHINES", "TIME", "REASON"]
    assert lines[1].startswith("13   failed  雪 x  ")
    assert lines[1].endswith("10.0 s · 3 min ago  exit code 3")
    assert lines[2].split(maxsplit=4)[:4] == ["14", "queued", "train", "lab"]
    assert lines[2].endswith("1 min ago           lab is full")


def test_status_without_jobs_says_how_to_start_one(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs", jobs())
    assert tow("status").stdout == "no jobs yet: tow run COMMAND starts one\n"
    assert tow.json("status") == {"jobs": [], "batches": [], "left_out": 0}


def test_status_passes_its_filters_on(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs", jobs())
    tow("status", "-a", "-n", "5", "-c", "la b&c", "--state", "running")
    query = stub.asked_of("GET /v1/jobs")[0].query
    assert query == {"all": "1", "limit": "5", "cluster": "la b&c", "state": "running"}


def test_status_of_named_jobs_asks_for_each(tow: Tow, stub: Stub) -> None:
    for number in (12, 13, 14):
        stub.on(f"GET /v1/jobs/{number}", answer(job(number)))
    found = tow.json("status", "12", "13-14", "12")["jobs"]
    assert [view["id"] for view in found] == [12, 13, 14]


def test_control_characters_in_a_title_do_not_reach_the_terminal(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs", jobs(job(title="\x1b[31mred\nline")))
    shown = tow("status").stdout
    assert "\x1b" not in shown and len(shown.splitlines()) == 2


def test_show_tells_everything_about_a_job(tow: Tow, stub: Stub) -> None:
    process = {"group": 0, "process": 1, "machine": "gpu1", "gpus": [0, 2], "state": "running"}
    history = [{"at": 1000.0, "text": "accepted"}, {"at": 1001.0, "text": "started on gpu1"}]
    detail = job(command=["echo", "a b"], processes=[process], history=history)
    stub.on("GET /v1/jobs/12", answer(detail))
    shown = tow("show", "12").stdout
    for text in ("job 12 · running", "echo 'a b'", "0.1", "0, 2", "started on gpu1", "/home/me"):
        assert text in shown
    assert tow.json("show", "12") == detail


def test_stop_can_kill_at_once(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/jobs/stop", jobs(job(12, "stopping")))
    assert tow("stop", "--now", "12").stdout == "job 12 stopping\n"
    assert stub.asked_of("POST /v1/jobs/stop")[0].json == {
        "ids": [12],
        "now": True,
        "give_up": False,
    }


def test_why_shows_the_reason_and_each_machine(tow: Tow, stub: Stub) -> None:
    told = {"text": "waits for a GPU", "machines": [{"machine": "gpu1", "reason": "is full"}]}
    stub.on("GET /v1/jobs/12/why", answer(told))
    assert tow("why", "12").stdout == "waits for a GPU\n\nMACHINE  REASON\ngpu1     is full\n"
    assert tow.json("why", "12") == told


def test_retry_can_follow(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/jobs/retry", jobs(job(12, "queued")))
    stub.on("GET /v1/jobs/12/log", stream({"job": job()}, {"end": job(state="done")}))
    assert tow("retry", "12").stdout == "job 12 queued\n"
    assert "job 12 done" in tow("retry", "-f", "12").stderr
    assert tow("retry", "-f", "12", "13").returncode == 2


GPU = {
    "index": 0,
    "model": "NVIDIA GeForce GTX 1070",
    "mem_mb": 8192,
    "free_mb": 6144,
    "util": 0.35,
}
MACHINE = {
    "name": "gpu1",
    "clusters": ["lab"],
    "state": "online",
    "reason": "",
    "cpus": 8,
    "cpus_free": 6.5,
    "mem_mb": 32768,
    "mem_free_mb": 16384,
    "gpus": [{**GPU, "used_by": "job 12"}, {**GPU, "index": 1, "used_by": ""}],
    "jobs": [12],
    "seen": 1000.0,
}
OFFLINE = {
    "name": "gpu2",
    "clusters": ["lab"],
    "state": "offline",
    "reason": "no answer",
    "gpus": [],
}


def test_machines_show_what_is_free_and_who_uses_the_gpus(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/machines", answer({"machines": [MACHINE, OFFLINE]}))
    lines = tow("machines", "-c", "lab").stdout.splitlines()
    assert "6.5 of 8" in lines[1] and "16 GB of 32 GB" in lines[1]
    assert "0 GTX 1070 ██░░░░░░ 6 GB of 8 GB free, 35 % busy, job 12" in lines[1]
    assert lines[2].strip().startswith("1 GTX 1070")
    assert "offline" in lines[3] and "no answer" in lines[3]
    query = stub.asked_of("GET /v1/machines")[0].query
    assert query == {"cwd": str(tow.folder), "cluster": "lab"}
    assert tow.json("machines")["machines"] == [MACHINE, OFFLINE]


def a_node(name: str, **settings: Any) -> dict[str, Any]:
    kinds = [{"model": "a100", "count": 4, "free": 1}]
    node = {**MACHINE, "node": True, "name": name, "cpus_free": 2, "gpus": kinds, "closed": ""}
    return node | settings


def test_few_nodes_are_shown_one_by_one(tow: Tow, stub: Stub) -> None:
    closed = a_node("n2", closed="Slurm calls it drain: bad disk", gpus=[])
    stub.on("GET /v1/machines", answer({"machines": [a_node("n1", jobs=[7]), closed]}))
    lines = tow("machines", "-c", "cedar").stdout.splitlines()
    assert "a100 ██████░░ 1 of 4 free" in lines[1] and " 7 " in lines[1]
    assert "closed" in lines[2] and lines[3].strip() == "Slurm calls it drain: bad disk"


def test_many_nodes_that_are_alike_are_one_row(tow: Tow, stub: Stub) -> None:
    alike = [a_node(f"n{number:03d}", jobs=[number]) for number in range(1, 31)]
    others = [a_node("login", gpus=[]), a_node("n050", state="offline", reason="down")]
    stub.on("GET /v1/machines", answer({"machines": [*alike, *others]}))
    lines = tow("machines", "-c", "cedar").stdout.splitlines()
    assert lines[1].startswith("30: n[001-030]") and "60 of 240" in lines[1]
    assert "a100 ██████░░ 30 of 120 free" in lines[1]
    assert lines[2].startswith("login") and lines[3].startswith("n050") and len(lines) == 4
    assert len(tow.json("machines")["machines"]) == 32


def test_names_of_nodes_are_folded_as_slurm_folds_them() -> None:
    assert folded(["gpu001", "gpu002", "gpu007", "x"]) == "gpu[001-002,007], x"
    assert folded(["n9", "n10", "n11"]) == "n9, n[10-11]"


def test_a_slurm_is_added_by_its_access_node(tow: Tow, stub: Stub) -> None:
    step = {"step": {"machine": "cedar", "text": "slurm 22.05, 1 node", "ok": True}}
    stub.on("POST /v1/clusters", stream(step, {"machines": [a_node("n1")]}, {"done": True}))
    words = "--slurm", "me@cedar", "-o", "mem=16G", "-o", "exclusive", "--folder", "/scratch/me"
    shown = tow("clusters", "add", "cedar", *words).stdout
    assert shown.startswith("✓ cedar: slurm 22.05, 1 node\n") and "added cedar" in shown
    assert stub.asked_of("POST /v1/clusters")[0].json == {
        "name": "cedar",
        "machines": [],
        "kind": "slurm",
        "host": "me@cedar",
        "folder": "/scratch/me",
        "options": {"mem": "16G", "exclusive": "true"},
    }
    cedar = {"name": "cedar", "kind": "slurm", "from": "x", "machines": [], "host": "me@cedar"}
    stub.on("GET /v1/clusters", answer({"clusters": [cedar]}))
    assert "cedar    slurm  me@cedar" in tow("clusters").stdout


def test_clusters_are_listed_added_and_removed(tow: Tow, stub: Stub) -> None:
    lab = {"name": "lab", "kind": "machines", "default": True, "from": "x", "machines": ["gpu1"]}
    stub.on("GET /v1/clusters", answer({"clusters": [lab]}))
    step = {"step": {"machine": "gpu1", "text": "connected", "ok": True}}
    frames = step, {"machines": [MACHINE]}, {"done": True}
    stub.on("POST /v1/clusters", stream(*frames))
    stub.on("DELETE /v1/clusters/l/b", answer({}))
    assert "lab (default)  machines  gpu1" in tow("clusters").stdout
    shown = tow("clusters", "add", "lab", "gpu1", "me@10.0.0.5:2222", "--setup", "x").stdout
    assert shown.startswith("✓ gpu1: connected\n") and "added lab" in shown
    asked = stub.asked_of("POST /v1/clusters")[0].json
    assert asked == {"name": "lab", "machines": ["gpu1", "me@10.0.0.5:2222"], "setup": "x"}
    lines = tow("clusters", "add", "lab", "gpu1", "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == list(frames)
    assert tow("clusters", "remove", "l/b").returncode == 0


def test_a_machine_that_wants_a_password_is_told_when_its_cluster_is_added(
    tow: Tow, stub: Stub
) -> None:
    login = {"machine": "gpu1", "target": "gpu1", "command": ["false"]}
    step = {"machine": "gpu1", "text": "refused", "hint": "log in", "ok": False, "login": login}
    stub.on("POST /v1/clusters", stream({"step": step}, {"machines": [OFFLINE]}, {"done": True}))
    done = tow("clusters", "add", "lab", "gpu1")
    assert done.returncode == 0
    assert "✗ gpu1: refused\n    log in\n" in done.stdout
    assert "type: tow login gpu1" in done.stderr
    # Perhaps it only asks whether its host key is right.
    assert "password" not in done.stderr


def test_cluster_of_which_nothing_answers_is_not_added(tow: Tow, stub: Stub) -> None:
    step = {"machine": "gpu9", "text": "there is no host of that name", "ok": False}
    stub.on("POST /v1/clusters", stream({"step": step}, {"done": True, "added": False}))
    done = tow("clusters", "add", "lab", "gpu9")
    assert done.returncode == 1
    assert "✗ gpu9: there is no host" in done.stdout and "added lab" not in done.stdout
    assert "nothing was added" in done.stderr and "--offline" in done.stderr
    assert tow("clusters", "add", "--json", "lab", "gpu9").returncode == 1
    tow("clusters", "add", "--offline", "lab", "gpu9")
    assert stub.asked_of("POST /v1/clusters")[-1].json["offline"] is True


def test_default_cluster_is_chosen(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/clusters/default", answer({}))
    assert "lab is meant where no -c is given" in tow("clusters", "default", "lab").stdout
    assert stub.asked_of("POST /v1/clusters/default")[0].json == {"name": "lab"}


def test_doctor_says_what_is_wrong_and_fails(tow: Tow, stub: Stub) -> None:
    place = {"cluster": "lab", "machine": "gpu1"}
    well = {**place, "name": "ssh", "ok": True, "text": "answers", "hint": ""}
    wrong = {**place, "name": "python3", "ok": False, "text": "not found", "hint": "install it"}
    frames = [{"step": well}, {"step": wrong}, {"done": True, "ok": False}]
    stub.on("GET /v1/doctor", stream(*frames), stream(*frames), stream({"done": True, "ok": True}))
    done = tow("doctor")
    assert done.returncode == 1
    assert done.stdout.startswith(
        "lab · gpu1\n  ✓ ssh: answers\n  ✗ python3: not found\n      install it\n"
    )
    lines = tow("doctor", "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == frames
    assert tow("doctor").returncode == 0


def test_login_needs_a_terminal(tow: Tow, stub: Stub) -> None:
    login = {"target": "gpu1", "command": ["false"]}
    stub.on("GET /v1/machines/login", answer({"logins": [login]}), answer({"logins": []}))
    assert "only be typed on a terminal" in tow("login", "lab").stderr
    assert tow("login", "lab").stdout == "lab needs no login\n"


def test_exec_gives_the_commands_own_output_and_exit_code(tow: Tow, stub: Stub) -> None:
    header = {"stream": "out", "group": 0, "process": 0, "label": "0.0", "offset": 0}
    end = {"end": job(exit_code=7)}
    stub.on("POST /v1/jobs/12/exec", stream((header, b"GPU 0\n"), end))
    done = tow("exec", "12", "--process", "3", "--", "nvidia-smi", "--json", "-p")
    assert (done.returncode, done.stdout) == (7, "GPU 0\n")
    asked = stub.asked_of("POST /v1/jobs/12/exec")[0].json
    assert asked == {"argv": ["nvidia-smi", "--json", "-p"], "process": 3}
    assert tow("exec", "12").returncode == 2


def test_forward_stays_until_interrupted_and_then_closes(tow: Tow, stub: Stub) -> None:
    import signal

    stub.on("GET /v1/jobs/12", answer(job(state="running")))
    stub.on("POST /v1/jobs/12/forward", answer({"local": 6006}))
    stub.on("DELETE /v1/forwards/6006", answer({}))
    running = tow.popen("forward", "12", "6006")
    assert running.stdout is not None
    assert running.stdout.readline() == "http://localhost:6006 -> job 12 port 6006\n"
    running.send_signal(signal.SIGINT)
    assert running.wait(20) == 0
    assert len(stub.asked_of("DELETE /v1/forwards/6006")) == 1


def test_a_service_that_does_not_name_its_port_is_questioned(tow: Tow, stub: Stub) -> None:
    stub.on("POST /v1/jobs", answer({"jobs": [job()]}))
    said = tow("run", "-d", "--service", "jupyter lab --port ", "true").stderr
    assert "does not name $PORT" in said and "single quotes" in said
    said = tow("run", "-d", "--service", "tensorboard", "--service", "x $PORT", "true").stderr
    assert "does not name" not in said


def test_a_detached_forward_is_listed_and_stopped(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12", answer(job(state="running")), answer(job(state="done")))
    stub.on("POST /v1/jobs/12/forward", answer({"local": 9999}))
    stub.on("GET /v1/forwards", answer({"forwards": [{"job": 12, "port": 8888, "local": 9999}]}))
    stub.on("DELETE /v1/forwards/9999", answer({}))
    assert tow("forward", "-d", "12", "8888", "--local", "9999").returncode == 0
    ended = tow("forward", "-d", "12", "9000:8888")
    assert ended.returncode == 0 and "job 12 has ended" in ended.stderr
    asked = [one.json for one in stub.asked_of("POST /v1/jobs/12/forward")]
    assert asked == [{"port": 8888, "local": 9999}, {"port": 8888, "local": 9000}]
    assert "a port is a number" in tow("forward", "12", "http").stderr
    assert tow("forward", "--list").stdout.splitlines()[1].split() == ["9999", "12", "8888"]
    assert tow("forward", "--stop", "9999").returncode == 0


def test_a_refusal_without_a_hint_is_one_line(tow: Tow, stub: Stub) -> None:
    stub.on("GET /v1/jobs/12", refusal("there is no job 12", code="not_found"))
    assert tow("show", "12").stderr == "tow: there is no job 12\n"
