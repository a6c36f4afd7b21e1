"""Results that come home again: those of the last attempt, beside what a person made of them."""

import os
import subprocess
from pathlib import Path

from e2e.homes import brought, home_of, settled
from e2e.jobs import complaint, show, submit
from testbed.tow import Tow
from testbed.waiting import wait_until

#: Makes what the file it is told of says; fails when that is a 1.
FLAKY = """
n=$(cat "$0"); echo "attempt $n" > out.csv; echo "only $n" > only-$n; echo "printed $n"
[ $n = 1 ] && { echo "went wrong" >&2; exit 1; }; true
"""


def test_after_a_retry_the_results_are_those_of_the_last_attempt(tow: Tow, tmp_path: Path) -> None:
    number = tmp_path / "number"
    number.write_text("1")
    assert tow("run", "sh", "-c", FLAKY, str(number)).returncode == 1
    home = home_of(tow, 1)
    assert brought(home) == ["only-1", "out.csv"]
    assert (tow.folder / "job_results/1.err").read_text() == "went wrong\n"
    number.write_text("2")
    assert tow("retry", "1").returncode == 0
    done = tow("attach", "1")
    assert (done.returncode, "kept" in done.stderr) == (0, False), done.stderr
    assert brought(home) == ["only-2", "out.csv"]
    assert (home / "out.csv").read_text() == "attempt 2\n"
    assert (tow.folder / "job_results/1.out").read_text() == "printed 2\n"
    assert not (tow.folder / "job_results/1.err").exists()
    # What a person wrote stays, and whoever asks is told, as often as asked.
    (home / "out.csv").write_text("by hand")
    number.write_text("3")
    assert tow("retry", "1").returncode == 0
    settled(tow, 1)
    named = "kept job_results/1/out.csv as it was; the newer copy is job_results/1/out.csv.2"
    assert named in tow("attach", "1").stderr
    assert (home / "out.csv").read_text() == "by hand"
    assert (home / "out.csv.2").read_text() == "attempt 3\n"
    assert brought(home) == ["only-3", "out.csv", "out.csv.2"]


def test_a_batch_that_is_run_again_has_the_new_results_and_tells_what_it_kept(
    tow: Tow, tmp_path: Path
) -> None:
    number = tmp_path / "number"
    number.write_text("1")
    (tow.folder / "flaky.sh").write_text(FLAKY.replace("$0", "$1"))
    (tow.folder / "flaky.txt").write_text(f"sh flaky.sh {number}\n")
    assert tow("batch", "flaky.txt").returncode == 1
    home = tow.folder / "job_results" / "flaky.1"
    assert (home / "out.csv").read_text() == "attempt 1\n"
    number.write_text("2")
    assert tow("batch", "--rerun-failed", "flaky.txt").returncode == 0
    assert (home / "out.csv").read_text() == "attempt 2\n"
    assert brought(home) == ["only-2", "out.csv"]
    (home / "out.csv").write_text("by hand")
    number.write_text("1")
    assert tow("retry", "1").returncode == 0
    settled(tow, 1)
    number.write_text("3")
    done = tow("batch", "--rerun-failed", "flaky.txt")
    assert done.returncode == 0
    assert "kept job_results/flaky.1/out.csv as it was" in done.stdout + done.stderr
    assert (home / "out.csv").read_text() == "by hand"
    assert (home / "out.csv.2").read_text() == "attempt 3\n"


def test_results_fetched_again_and_again_are_the_final_ones_in_the_end(tow: Tow) -> None:
    script = (
        "n=0; until [ -e stop ]; do n=$((n+1)); echo $n >> metrics.csv; echo line $n; "
        "until [ -e go$n ] || [ -e stop ]; do sleep 0.05; done; done; echo end >> metrics.csv"
    )
    job = submit(tow, "sh", "-c", script)
    home = home_of(tow, job)
    for round in (1, 2, 3):
        wait_until(lambda line=f"line {round}\n": line in tow("log", str(job)).stdout, every=0.1)
        assert tow.json("results", str(job))["conflicts"] == []
        assert (home / "metrics.csv").read_text().split() == [str(n + 1) for n in range(round)]
        assert (
            tow("exec", str(job), "touch", "stop" if round == 3 else f"go{round}").returncode == 0
        )
    settled(tow, job)
    assert brought(home) == ["go1", "go2", "metrics.csv", "stop"]
    assert (home / "metrics.csv").read_text() == "1\n2\n3\nend\n"


def test_results_have_the_modes_that_the_submitters_umask_gives(tow: Tow) -> None:
    script = "umask 022; mkdir d; echo 1 > d/made; echo printed"
    words = [*tow.program, "run", "sh", "-c", script]
    done = subprocess.run(words, cwd=tow.folder, env=tow.env, umask=0o077, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert tow("run", "echo", "printed").returncode == 0
    top = tow.folder / "job_results"
    places = [top, top / "1", top / "1/d", top / "1/d/made", top / "1.out", top / "2.out"]
    modes = [place.stat().st_mode & 0o777 for place in places]
    assert modes == [0o700, 0o700, 0o700, 0o600, 0o600, 0o644]


def test_nothing_is_made_for_what_was_not_printed_and_git_sees_none_of_it(tow: Tow) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tow.folder, check=True)
    assert tow("run", "echo", "1").returncode == 0
    assert tow("run", "sh", "-c", "echo 2 >&2").returncode == 0
    assert tow("run", "sh", "-c", "echo 3 > made").returncode == 0
    assert sorted(os.listdir(tow.folder / "job_results")) == [".gitignore", "1.out", "2.err", "3"]
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=tow.folder, capture_output=True, text=True
    )
    assert status.stdout == ""


def test_a_path_that_was_to_come_home_and_was_not_made_is_told(tow: Tow) -> None:
    done = tow("run", "--back", "nosuch.txt", "true")
    assert done.returncode == 0
    told = "nosuch.txt was not made or changed: nothing of it came home"
    assert f"{told} (it made nothing)" in done.stderr
    script = "mkdir d; echo 1 > d/a; echo 2 > b"
    done = tow("run", "--back", "./d/", "--back", "nosuch.txt", "sh", "-c", script)
    assert f"{told} (it made: b, d/a)" in done.stderr, done.stderr
    assert brought(home_of(tow, 2)) == ["d/a"]
    assert told in tow("results", "--back", "nosuch.txt", "2").stderr
    (tow.folder / "lines").write_text("echo 1 > made\n")
    done = tow("batch", "--back", "nosuch.txt", "lines")
    assert f"{told} (it made: made)" in done.stdout + done.stderr


def test_a_pattern_that_includes_nothing_is_refused_before_anything_is_sent(tow: Tow) -> None:
    (tow.folder / "data").mkdir()
    (tow.folder / "data" / "rows").write_text("1")
    assert tow("run", "--include", "data", "true").returncode == 0
    for option in ("--detach", "--dry-run"):
        refused = complaint(tow("run", option, "--include", "nosuchdir", "true"), 2)
        assert "--include nosuchdir: there is nothing of that name in" in refused
    assert len(tow.json("status", "--all")["jobs"]) == 1


def test_what_was_checked_out_does_not_travel_with_later_jobs(tow: Tow) -> None:
    (tow.folder / "one").write_text("1")
    assert tow("run", "true").returncode == 0
    assert tow("checkout", "1").returncode == 0
    assert (tow.folder / "job-1" / "one").read_text() == "1"
    assert tow("run", "ls").stdout == "one\n"
    # The folder itself can still be worked in.
    assert tow("run", "ls", cwd=tow.folder / "job-1").stdout == "one\n"


def test_to_git_what_was_checked_out_is_no_part_of_the_project(tow: Tow) -> None:
    (tow.folder / "two").write_text("2")
    subprocess.run(["git", "init", "-q"], cwd=tow.folder, check=True)
    assert tow("run", "true").returncode == 0
    for _ in range(2):
        assert tow("checkout", "1", "again").returncode == 0
        assert os.listdir(tow.folder / "again") == ["two"]
        status = ["git", "status", "--porcelain"]
        seen = subprocess.run(status, cwd=tow.folder, capture_output=True, text=True).stdout
        assert seen == "?? two\n"
        assert tow("run", "ls").stdout == "two\n"
        subprocess.run(["rm", "-r", "again"], cwd=tow.folder, check=True)
    assert (tow.folder / ".git/info/exclude").read_text().count("/again/") == 1


def test_the_last_line_of_a_failed_job_names_its_results(tow: Tow) -> None:
    done = tow("run", "sh", "-c", "echo 1 > made; exit 3")
    assert "exit code 3" in done.stderr.splitlines()[-1]
    assert "results: job_results/1" in done.stderr.splitlines()[-1]


def test_a_folder_that_cannot_be_written_to_is_named(tow: Tow) -> None:
    (tow.folder / "job_results").write_text("a file")
    done = tow("run", "sh", "-c", "echo 1 > made")
    assert done.returncode == 0
    told = f"there is a file in the way of {tow.folder}/job_results/1/made"
    assert f"not fetched: {told}" in done.stderr
    assert show(tow, 1)["results"] == f"not fetched: {told}"
    refused = tow("results", "1")
    assert refused.returncode == 2 and refused.stderr.startswith(f"tow: {told}")
    (tow.folder / "job_results").unlink()
    assert tow("results", "1").returncode == 0
    assert show(tow, 1)["results"] == f"{tow.folder}/job_results/1"
