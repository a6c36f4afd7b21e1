"""What a job made or changed comes home, whatever happened meanwhile; nothing of yours is lost."""

import os
import subprocess
from pathlib import Path

import pytest

from e2e.engines import engine_pid, kill_engine
from e2e.homes import UNTIL_GO, brought, home_of, settled
from e2e.jobs import configure, raw, show, submit, wait_for
from testbed.hosts import Hosts
from testbed.tow import Tow
from testbed.waiting import wait_until


def test_what_was_made_or_changed_comes_home_and_nothing_else(tow: Tow) -> None:
    for name in ("same", "touched", "rewritten", "changed", "removed"):
        (tow.folder / name).write_text(f"{name}\n")
    script = (
        "touch touched; echo rewritten > rewritten; echo more >> changed; rm removed; "
        "mkdir -p out/deep; echo 1 > out/deep/made; mv same moved; mkdir __pycache__ job_results; "
        "touch __pycache__/x job_results/y; echo printed; echo complained >&2"
    )
    done = tow("run", "sh", "-c", script)
    assert "results: job_results/1" in done.stderr.splitlines()[-1]
    home = home_of(tow, 1)
    assert brought(home) == ["changed", "moved", "out/deep/made"]
    assert (home / "changed").read_text() == "changed\nmore\n"
    assert (tow.folder / "changed").read_text() == "changed\n"
    assert (tow.folder / "job_results/1.out").read_text() == "printed\n"
    assert (tow.folder / "job_results/1.err").read_text() == "complained\n"


def test_a_large_file_that_was_not_changed_does_not_come_home(tow: Tow) -> None:
    with open(tow.folder / "weights.pt", "wb") as file:
        file.write(os.urandom(1000))
        file.truncate(70_000_000)
    for number in (1, 2, 3):
        assert tow("run", "echo", "1").returncode == 0
        assert not home_of(tow, number).exists()


@pytest.mark.slow
def test_results_that_fill_several_lists_come_home_all(tow: Tow) -> None:
    script = "mkdir d; cd d; seq 12500 | split -l 1 -a 5 -d - f"
    done = tow("run", "sh", "-c", script, timeout=110)
    assert "results: job_results/1" in done.stderr
    assert len(brought(home_of(tow, 1))) == 12500


def test_contents_modes_and_names_come_home_as_they_are(tow: Tow, weird_path: Path) -> None:
    script = r"""
import os
open("empty", "w").close()
open("raw", "wb").write(bytes(range(256)) * 5000)
open("tool", "w").write("#!/bin/sh"); os.chmod("tool", 0o755)
open("private", "w").write("x"); os.chmod("private", 0o600)
open("new\nline", "w").write("1"); open("-dash 雪", "w").write("2")
open(b"latin-\xe9", "w").write("3"); open("n" * 255, "w").write("4")
"""
    done = raw(tow, "run", "python3", "-c", script, folder=weird_path)
    assert done.returncode == 0, done.stderr
    home = home_of(tow, 1, weird_path)
    odd = os.fsdecode(b"latin-\xe9")
    names = ["empty", "raw", "tool", "private", "new\nline", "-dash 雪", odd, "n" * 255]
    assert brought(home) == sorted(names)
    assert (home / "raw").read_bytes() == bytes(range(256)) * 5000
    assert (home / "empty").read_bytes() == b""
    modes = {name: (home / name).stat().st_mode & 0o777 for name in ("tool", "private", "raw")}
    assert modes == {"tool": 0o755, "private": 0o600, "raw": 0o644}


def test_a_folder_whose_name_is_not_text_gets_its_results(tow: Tow) -> None:
    folder = tow.folder / os.fsdecode(b"latin-\xe9")
    folder.mkdir()
    done = raw(tow, "run", "sh", "-c", "echo 1 > made", folder=folder)
    assert b"results: job_results/1" in done.stderr
    assert brought(home_of(tow, 1, folder)) == ["made"]


def test_a_job_of_a_sub_folder_brings_home_what_is_below_it(tow: Tow) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tow.folder, check=True)
    sub = tow.folder / "study" / "one"
    sub.mkdir(parents=True)
    (sub / "given").write_text("x")
    script = "echo 1 > made; echo 2 >> given; echo 3 > ../beside"
    assert tow("run", "sh", "-c", script, cwd=sub).returncode == 0
    assert brought(home_of(tow, 1, sub)) == ["given", "made"]
    # Results do not travel to the next job, nor make the tree dirty.
    found = tow("run", "find", "..", "-name", "job_results", cwd=sub)
    assert found.stdout == ""
    assert [entry["path"] for entry in show(tow, 2)["changed"]] == ["study/one/given"]


def test_links_that_stay_inside_come_home_and_those_that_lead_out_are_named(tow: Tow) -> None:
    script = (
        "mkdir d; echo 1 > d/f; ln -s d/f within; ln -s ../within d/up; ln -s d folder; "
        "ln -s /etc/passwd absolute; ln -s ../../secret above; ln -s . d/dot; "
        "ln -s d/dot/../../../x around"
    )
    done = tow("run", "sh", "-c", script)
    home = home_of(tow, 1)
    assert brought(home) == ["d/dot", "d/f", "d/up", "folder", "within"]
    assert (home / "d/up").read_text() == "1\n"
    for name in ("absolute", "above", "around"):
        assert f"left out {name}: it leads out of the folder" in done.stderr
    assert "left out absolute" in str(show(tow, 1)["history"])
    assert "left out above" in tow("results", "1").stderr


def test_nothing_that_is_here_is_overwritten(tow: Tow) -> None:
    home = home_of(tow, 1)
    home.mkdir(parents=True)
    (home / "mine").write_text("by hand\n")
    (home / "same").write_text("same\n")
    (home / "link").symlink_to("elsewhere")
    (home.parent / "1.out").write_text("not of this job\n")
    script = "echo theirs > mine; echo same > same; ln -s same link; echo printed"
    done = tow("run", "sh", "-c", script)
    assert (home / "mine").read_text() == "by hand\n"
    assert (home / "mine.2").read_text() == "theirs\n"
    assert (os.readlink(home / "link"), os.readlink(home / "link.2")) == ("elsewhere", "same")
    assert (home.parent / "1.out").read_text() == "not of this job\n"
    assert (home.parent / "1.out.2").read_text() == "printed\n"
    assert brought(home) == ["link", "link.2", "mine", "mine.2", "same"]
    named = "kept job_results/1/mine as it was; the newer copy is job_results/1/mine.2"
    assert named in done.stderr
    assert named in [entry["text"] for entry in show(tow, 1)["history"]]
    # Fetched again, there is nothing new to put beside.
    assert tow.json("results", "1")["conflicts"] == []
    assert brought(home) == ["link", "link.2", "mine", "mine.2", "same"]


def test_back_narrows_what_comes_home_and_no_results_brings_nothing(tow: Tow) -> None:
    script = "mkdir out other; echo 1 > out/a; echo 2 > other/b; echo 3 > c; echo 4 > outer"
    assert tow("run", "--back", "out/", "--back", "c", "sh", "-c", script).returncode == 0
    assert brought(home_of(tow, 1)) == ["c", "out/a"]
    done = tow("run", "--no-results", "sh", "-c", script)
    assert "results" not in done.stderr
    assert not home_of(tow, 2).exists() and not (tow.folder / "job_results/2.out").exists()
    assert tow("results", "2", "--back", "other").stdout.startswith("1 file")
    assert brought(home_of(tow, 2)) == ["other/b"]


def test_a_job_that_made_and_said_nothing_leaves_nothing_here(tow: Tow) -> None:
    done = tow("run", "true")
    assert "results" not in done.stderr
    assert not (tow.folder / "job_results").exists()


def test_every_process_has_a_folder_and_an_output_of_its_own(tow: Tow) -> None:
    configure(tow)
    script = "echo $RANK > made; echo rank $RANK"
    assert tow("run", "-r", "2:[],[]", "sh", "-c", script).returncode == 0
    home = home_of(tow, 1)
    assert brought(home) == ["0.0/made", "0.1/made", "1.0/made"]
    assert [(home / name / "made").read_text() for name in ("0.0", "0.1", "1.0")] == [
        "0\n",
        "1\n",
        "2\n",
    ]
    assert (tow.folder / "job_results/1.1.0.out").read_text() == "rank 2\n"


def test_a_failed_and_a_stopped_job_bring_home_what_they_made(tow: Tow) -> None:
    assert tow("run", "sh", "-c", "echo half > made; exit 3").returncode == 3
    assert (home_of(tow, 1) / "made").read_text() == "half\n"
    job = submit(tow, "sh", "-c", "echo half > made; echo began; exec sleep 60")
    wait_until(lambda: tow("log", str(job)).stdout == "began\n", every=0.1)
    assert tow("stop", str(job)).returncode == 0
    assert settled(tow, job)["state"] == "stopped"
    assert (home_of(tow, job) / "made").read_text() == "half\n"


def test_results_of_a_running_job_are_what_is_there_now(tow: Tow) -> None:
    script = f"echo 1 > first; echo began; {UNTIL_GO}; echo 2 > second; echo ended"
    job = submit(tow, "sh", "-c", script)
    wait_until(lambda: tow("log", str(job)).stdout == "began\n", every=0.1)
    assert tow("results", str(job)).stdout.startswith("1 file")
    home = home_of(tow, job)
    assert brought(home) == ["first"]
    assert (tow.folder / f"job_results/{job}.out").read_text() == "began\n"
    assert tow("exec", str(job), "touch", "go").returncode == 0
    settled(tow, job)
    assert brought(home) == ["first", "go", "second"]
    # What was printed since goes behind what was here: that is no conflict.
    assert (tow.folder / f"job_results/{job}.out").read_text() == "began\nended\n"
    assert not (tow.folder / f"job_results/{job}.out.2").exists()


def test_results_of_a_job_that_has_not_started_are_not_there_yet(tow: Tow) -> None:
    blocker = submit(tow, "--exclusive", "sleep", "60")
    wait_for(tow, blocker, "running")
    job = submit(tow, "true")
    refused = tow("results", str(job))
    assert refused.returncode == 2
    assert "has not started yet" in refused.stderr
    assert tow("stop", "all").returncode == 0


def test_a_long_output_comes_home_whole(tow: Tow) -> None:
    program = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 8192); print('end')"
    assert raw(tow, "run", "python3", "-c", program).returncode == 0
    wanted = bytes(range(256)) * 8192 + b"end\n"
    assert (tow.folder / "job_results/1.out").read_bytes() == wanted


def test_when_the_folder_is_gone_results_go_to_a_spare_one(tow: Tow) -> None:
    folder = tow.folder / "short-lived"
    folder.mkdir()
    script = 'while [ -d "$0" ]; do sleep 0.05; done; echo 1 > made'
    job = submit(tow, "sh", "-c", script, str(folder), cwd=folder)
    wait_for(tow, job, "running")
    folder.rmdir()
    found = settled(tow, job)
    assert Path(found["results"]) == tow.home / "job_results" / str(job)
    assert brought(tow.home / "job_results" / str(job)) == ["made"]
    assert not folder.exists()


def test_results_are_fetched_by_the_next_engine_when_one_was_killed(
    tow: Tow, tow_home: Path
) -> None:
    script = f"{UNTIL_GO}; echo 1 > made; echo printed"
    job = submit(tow, "sh", "-c", script)
    wait_for(tow, job, "running")
    source = Path(show(tow, job)["processes"][0]["folder"]) / "src"
    kill_engine(tow_home)
    (source / "go").touch()
    wait_until(lambda: (source.parents[2] / "records" / source.parent.name / "exit").exists())
    assert engine_pid(tow_home) == 0
    assert not home_of(tow, job).exists()
    assert settled(tow, job)["state"] == "done"
    assert brought(home_of(tow, job)) == ["go", "made"]
    assert (tow.folder / f"job_results/{job}.out").read_text() == "printed\n"


@pytest.mark.slow
def test_an_engine_killed_while_results_travel_leaves_nothing_half(
    tow: Tow, tow_home: Path
) -> None:
    script = "for n in $(seq 200); do head -c 300000 /dev/zero > f$n; done"
    for _ in range(5):
        job = submit(tow, "sh", "-c", script)
        wait_until(home_of(tow, job).exists, every=0.002)
        kill_engine(tow_home)
        settled(tow, job)
        names = brought(home_of(tow, job))
        assert names == sorted(f"f{n + 1}" for n in range(200))
        sizes = {(home_of(tow, job) / name).stat().st_size for name in names}
        assert sizes == {300_000}


def test_in_place_runs_in_the_folder_itself(tow: Tow) -> None:
    (tow.folder / "given").write_text("x")
    done = tow("run", "--in-place", "sh", "-c", "pwd; echo 1 > made; echo $SRC_DIR")
    assert done.stdout.split() == [str(tow.folder)] * 2
    assert (tow.folder / "made").read_text() == "1\n"
    assert not (tow.folder / "job_results").exists()


def test_a_job_starts_with_what_another_one_kept(tow: Tow) -> None:
    script = 'mkdir $KEEP_DIR/d; echo 7 > "$KEEP_DIR/d/épòch"; chmod 755 $KEEP_DIR/d/*; echo 1 > no'
    assert tow("run", "--in-place", "sh", "-c", script).returncode == 0
    more = 'cat $KEEP_DIR/d/*; test -x $KEEP_DIR/d/*; echo 8 >> "$KEEP_DIR/d/épòch"'
    done = tow("run", "--continue", "1", "sh", "-c", more)
    assert (done.returncode, done.stdout) == (0, "7\n")
    assert tow("run", "--continue", "last", "sh", "-c", "cat $KEEP_DIR/d/*").stdout == "7\n8\n"
    assert tow("run", "--continue", "1", "sh", "-c", "cat $KEEP_DIR/d/*").stdout == "7\n"
    refused = tow("run", "--continue", "99", "true")
    assert refused.returncode == 2 and "99" in refused.stderr


def test_links_that_a_job_kept_are_there_again(tow: Tow) -> None:
    # The Engine's home in a repository is no reason to send that.
    subprocess.run(["git", "init", "-q", str(tow.home)], check=True)
    script = "cd $KEEP_DIR; mkdir d; echo 7 > d/seven; ln -s seven d/last; ln -s d e; ln -s /etc f"
    assert tow("run", "sh", "-c", script).returncode == 0
    again = "cd $KEEP_DIR; find . | sort; cat e/last; readlink e d/last f"
    done = tow("run", "--continue", "1", "sh", "-c", again)
    assert done.stdout.split() == [
        ".", "./d", "./d/last", "./d/seven", "./e", "./f", "7", "d", "seven", "/etc"
    ]  # fmt: skip


def with_links(tow: Tow, links: str) -> None:
    text = f'[clusters.local]\nmachines = ["this"]\nlinks = {links}\n'
    (tow.home / "config.toml").write_text(text)


def test_data_that_is_there_already_appears_in_the_folder(tow: Tow, tmp_path: Path) -> None:
    data = tmp_path / "scratch" / "data"
    data.mkdir(parents=True)
    (data / "rows").write_text("1 2 3\n")
    (tow.folder / "sub").mkdir()
    (tow.folder / "sub" / "sent").write_text("sent")
    with_links(tow, f'{{ data = "{data}", "sub/rows.txt" = "~/data/rows" }}')
    env = {"HOME": str(tmp_path / "scratch")}
    script = "cat data/rows sub/rows.txt; echo 4 >> data/rows; echo 5 > data/new; echo 6 > made"
    done = tow("run", "sh", "-c", script, env=env)
    assert (done.returncode, done.stdout) == (0, "1 2 3\n1 2 3\n"), done.stderr
    assert brought(home_of(tow, 1)) == ["made"]
    assert "left out" not in done.stderr
    assert (data / "new").read_text() == "5\n"


def test_a_link_to_nowhere_and_one_in_the_way_fail_before_the_command(tow: Tow) -> None:
    with_links(tow, '{ data = "/no/such/data" }')
    done = tow("run", "echo", "never")
    assert done.returncode != 0 and done.stdout == ""
    assert "the link data leads to /no/such/data, which is not on this machine" in done.stderr
    with_links(tow, '{ data = "/tmp" }')
    (tow.folder / "data").mkdir()
    (tow.folder / "data" / "mine").write_text("x")
    done = tow("run", "echo", "never")
    assert done.returncode != 0 and done.stdout == ""
    assert "data is both a file that was sent and a link" in done.stderr


# --- on machines ---------------------------------------------------------------------------------


@pytest.mark.real
def test_results_of_a_machine_that_was_cut_off_come_home_when_it_is_back(
    hosts: Hosts, tow: Tow
) -> None:
    configure(tow, "h1")
    script = 'until [ -e "$HOME/end" ]; do sleep 0.05; done; echo 1 > made; touch "$HOME/over"'
    job = submit(tow, "-c", "lab", "sh", "-c", script)
    wait_for(tow, job, "running")
    hosts.cut("h1")
    (hosts.home("h1") / "end").touch()
    wait_until((hosts.home("h1") / "over").exists)
    assert not home_of(tow, job).exists()
    hosts.heal("h1")
    assert settled(tow, job, timeout=90)["state"] == "done"
    assert brought(home_of(tow, job)) == ["made"]


@pytest.mark.real
def test_what_a_job_kept_goes_to_another_machine(hosts: Hosts, tow: Tow) -> None:
    configure(tow, "h1", more='[clusters.other]\nmachines = ["h2"]\n')
    kept = tow("run", "-c", "lab", "sh", "-c", "hostname > $KEEP_DIR/where; echo 1 > made")
    assert kept.returncode == 0, kept.stderr
    done = tow("run", "-c", "other", "--continue", "1", "sh", "-c", "hostname; cat $KEEP_DIR/where")
    assert done.stdout == "h2\nh1\n", done.stderr
    assert brought(home_of(tow, 1)) == ["made"]


@pytest.mark.real
def test_in_place_is_for_this_machine_only(hosts: Hosts, tow: Tow) -> None:
    configure(tow, "h1")
    refused = tow("run", "-c", "lab", "--in-place", "true")
    assert refused.returncode == 2
    assert "cluster 'lab' is elsewhere" in refused.stderr


@pytest.mark.real
def test_a_file_that_may_not_be_read_is_named_and_the_others_come_home(
    hosts: Hosts, tow: Tow
) -> None:
    configure(tow, "h1")
    done = tow("run", "-c", "lab", "sh", "-c", "echo 1 > made; echo 2 > locked; chmod 000 locked")
    assert brought(home_of(tow, 1)) == ["made"]
    assert "left out locked: it leads out of the folder, or cannot be read" in done.stderr
