"""What a job leaves on its machine shrinks by itself, and goes when somebody says so."""

from pathlib import Path

from e2e.homes import UNTIL_GO
from e2e.jobs import complaint, show, submit, wait_for
from testbed.tow import Tow
from testbed.waiting import wait_until


def sources(tow: Tow) -> list[str]:
    """What is in the trees of jobs on this machine, without the jobs' own names."""
    jobs = tow.home / "machine" / "jobs"
    found = (path.relative_to(jobs).parts[2:] for path in jobs.glob("*/src/**/*"))
    return sorted("/".join(parts) for parts in found)


def job_folders(tow: Tow) -> list[Path]:
    return list((tow.home / "machine" / "jobs").iterdir())


def test_a_folder_shrinks_to_what_the_job_made_when_that_is_home(tow: Tow) -> None:
    (tow.folder / "sub").mkdir()
    for name in ("data.bin", "sub/more", "changed"):
        (tow.folder / name).write_text(name)
    done = tow("run", "sh", "-c", "echo 1 > made; echo 2 >> changed; echo 3 > $KEEP_DIR/kept")
    assert done.returncode == 0
    wait_until(lambda: sources(tow) == ["changed", "made"], timeout=60, every=0.2)
    assert tow("cat", "1", "made").stdout == "1\n"
    assert sorted(tow("ls", "1").stdout.split()) == ["changed", "made"]
    again = tow("run", "--continue", "1", "sh", "-c", "cat $KEEP_DIR/kept sub/more")
    assert again.stdout == "3\nsub/more"
    # What was sent is here, and goes there again.
    assert tow("retry", "1").returncode == 0
    assert wait_for(tow, 1, "done")["attempt"] == 2
    assert (tow.folder / "job_results/1/changed").read_text() == "changed2\n"


def test_a_job_is_forgotten_and_its_results_stay(tow: Tow) -> None:
    assert tow("run", "sh", "-c", "head -c 2000000 /dev/zero > made").returncode == 0
    assert tow("run", "echo", "other").returncode == 0
    done = tow("rm", "1")
    assert (done.returncode, done.stdout[:16]) == (0, "1 job forgotten,"), done.stderr
    assert "there is no job 1" in complaint(tow("show", "1"), 2)
    assert len(job_folders(tow)) == 1
    assert (tow.folder / "job_results/1/made").stat().st_size == 2_000_000
    assert tow.json("rm", "2")["jobs"] == [2]
    # Its number is not given to another, not even by the next Engine.
    assert tow("engine", "stop").returncode == 0
    assert submit(tow, "true") == 3


def test_what_has_not_ended_or_is_not_home_is_not_forgotten(tow: Tow) -> None:
    (tow.folder / "job_results").write_text("in the way")
    assert tow("run", "sh", "-c", "echo 1 > made").returncode == 0
    running = submit(tow, "sh", "-c", UNTIL_GO)
    wait_for(tow, running, "running")
    told = complaint(tow("rm", "1", str(running)), 2)
    assert "what job 1 made is not home" in told and "--force" in told
    told = complaint(tow("rm", str(running)), 2)
    assert f"job {running} has not ended" in told
    assert len(job_folders(tow)) == 2
    assert tow("rm", "--force", "1").returncode == 0
    assert len(job_folders(tow)) == 1
    assert tow("stop", "all").returncode == 0


def test_a_batch_is_forgotten_as_a_whole_and_a_line_of_it_only_over_there(tow: Tow) -> None:
    (tow.folder / "lines.txt").write_text("echo 1\necho 2\necho 3\n")
    assert tow("batch", "lines.txt").returncode == 0
    assert "the folders of 1 line of a batch went" in tow("rm", "1").stdout
    assert len(job_folders(tow)) == 2
    assert show(tow, 1)["state"] == "done"
    assert tow.json("rm", "lines")["batches"] == ["lines"]
    assert job_folders(tow) == []
    assert tow.json("batch", "list")["batches"] == []
    assert tow.json("status", "--all")["jobs"] == []
    assert (tow.folder / "job_results/lines.2.out").read_text() == "2\n"


def test_all_that_is_home_goes_at_once_when_that_is_asked_for(tow: Tow) -> None:
    assert tow("run", "sh", "-c", "head -c 2000000 /dev/zero > made").returncode == 0
    (machine,) = tow.json("machines", "--disk")["machines"]
    assert (machine["machine"], machine["folders"]) == ("this", 1)
    assert machine["jobs"] > 2_000_000 and machine["free"] > 0
    assert "JOB FOLDERS" in tow("machines", "--disk").stdout
    assert tow.json("gc", "--all", "--dry-run")["machines"][0]["folders"] == 1
    assert len(job_folders(tow)) == 1
    assert tow.json("gc", "--all")["machines"][0]["folders"] == 1
    assert job_folders(tow) == []
    assert show(tow, 1)["state"] == "done"
