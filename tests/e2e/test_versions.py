"""The version a job was submitted with: frozen, recorded, compared and brought back."""

import shutil
import subprocess
from pathlib import Path

import pytest

from e2e.jobs import complaint, show, submit, wait_for
from testbed.tow import Tow


def git(folder: Path, *words: str) -> str:
    settings = ["user.name=t", "user.email=t@t", "gc.auto=0"]
    options = [word for setting in settings for word in ("-c", setting)]
    done = subprocess.run(
        ["git", *options, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def repo(tow: Tow) -> Path:
    """The folder that `tow` is typed in, as a clean repository."""
    git(tow.folder, "init", "-q", "-b", "main")
    (tow.folder / "main.py").write_text("print('first')\n")
    (tow.folder / "notes").write_text("old\n")
    (tow.folder / ".gitignore").write_text("data/\n*.log\n")
    git(tow.folder, "add", ".")
    git(tow.folder, "commit", "-qm", "first")
    return tow.folder


def state_of(repo: Path) -> tuple[object, ...]:
    """All of the repository that a submission must leave alone."""
    inside = repo / ".git"
    return (
        git(repo, "status", "--porcelain", "--", ":!job_results"),
        git(repo, "stash", "list"),
        git(repo, "branch", "--list", "main", "-v"),
        (inside / "index").read_bytes(),
        (inside / "HEAD").read_bytes(),
        (inside / "logs" / "HEAD").read_bytes(),
    )


def make_dirty(repo: Path) -> None:
    (repo / "main.py").write_text("print('second')\n")
    (repo / "notes").unlink()
    (repo / "new ü").write_text("new\n")


def recorded(repo: Path) -> list[str]:
    """What git keeps of dirty trees, beside the branches."""
    assert git(repo, "branch", "--list", "towline/*") == ""
    return git(repo, "for-each-ref", "--format=%(refname:lstrip=1)", "refs/towline").split()


def test_edits_and_removals_made_while_a_job_waits_do_not_reach_it(tow: Tow, repo: Path) -> None:
    blocker = submit(tow, "--exclusive", "sleep", "60")
    wait_for(tow, blocker, "running")
    job = submit(tow, "sh", "-c", "python3 main.py; cat notes; ls data 2>&1")
    (repo / "main.py").write_text("print('too late')\n")
    (repo / "notes").unlink()
    git(repo, "commit", "-qam", "second")
    assert tow("stop", str(blocker)).returncode == 0
    assert tow("attach", str(job)).stdout.splitlines()[:2] == ["first", "old"]


def test_a_clean_tree_is_found_by_its_commit(tow: Tow, repo: Path) -> None:
    assert tow("run", "sh", "-c", "echo 1 > made").returncode == 0
    # The results of the first job do not make the tree dirty.
    assert (repo / "job_results" / "1" / "made").exists()
    assert tow("run", "true").returncode == 0
    for job in (1, 2):
        found = show(tow, job)
        assert found["commit"] == git(repo, "rev-parse", "HEAD").strip()
        assert (found["branch"], found["changed"], found["files"]) == ("", [], 3)
    assert recorded(repo) == []
    assert tow("snapshots").returncode == 0


def test_a_dirty_tree_is_recorded_and_the_repository_left_alone(tow: Tow, repo: Path) -> None:
    make_dirty(repo)
    before = state_of(repo)
    assert tow("run", "-t", "lr 0.1", "python3", "main.py").stdout == "second\n"
    assert state_of(repo) == before
    found = show(tow, 1)
    assert recorded(repo) == [found["branch"]]
    assert found["branch"].startswith("towline/dirty/lr-0-1-")
    assert git(repo, "show", f"{found['branch']}:main.py") == "print('second')\n"
    assert found["commit"] == git(repo, "rev-parse", found["branch"]).strip()
    # The same tree again is the same version, which the job can name.
    said = tow("run", "-t", "lr 0.2", "sh", "-c", "echo $TOWLINE_COMMIT").stdout.strip()
    assert said == found["commit"] == show(tow, 2)["commit"]
    assert recorded(repo) == [found["branch"]]
    changed = {entry["path"]: entry["letter"] for entry in found["changed"]}
    assert changed == {"main.py": "M", "notes": "D", "new ü": "?"}
    shown = tow("show", "1").stdout
    assert found["branch"] in shown and "M main.py" in shown and "3 files" in shown


def test_records_are_listed_and_pruned_and_the_version_stays(tow: Tow, repo: Path) -> None:
    make_dirty(repo)
    tow("run", "-t", "lr 0.1", "true")
    git(repo, "branch", "mine")
    (branch,) = recorded(repo)
    assert branch in tow("snapshots").stdout
    assert tow("snapshots", "--prune", "1h").returncode == 0
    assert recorded(repo) == [branch]
    assert tow("snapshots", "--prune", "0").returncode == 0
    assert recorded(repo) == []
    assert git(repo, "branch", "--list", "mine").strip() == "mine"
    assert tow("checkout", "1", "back").returncode == 0
    assert (repo / "back" / "main.py").read_text() == "print('second')\n"


def test_diff_shows_what_changed_since_and_between_jobs(tow: Tow, repo: Path) -> None:
    tow("run", "true")
    assert tow("diff", "1").stdout == ""
    make_dirty(repo)
    tow("run", "true")
    since = tow("diff", "1").stdout
    assert "-print('first')\n+print('second')\n" in since
    assert "--- a/notes\n+++ /dev/null\n" in since and "+new\n" in since
    assert tow("diff", "1", "2").stdout == since
    assert tow("diff", "2").stdout == ""
    assert tow("diff", "--names", "2", "1").stdout == "M main.py\nD new ü\nA notes\n"
    git(repo, "add", "-A", ".", ":!job_results")
    git(repo, "commit", "-qm", "second")
    (repo / "main.py").write_text("print('third')\n")
    assert tow("diff", "--names", "2").stdout == "M main.py\n"
    assert "-print('second')\n+print('third')\n" in tow.json("diff", "2")["diff"]


def test_diff_looks_at_what_the_job_itself_was_told_to_send(tow: Tow, repo: Path) -> None:
    (repo / ".gitignore").write_text("data/\n")
    (repo / "data").mkdir()
    (repo / "data" / "set").write_text("1\n")
    tow("run", "--include", "data", "--exclude", "notes", "true")
    assert tow("diff", "1").stdout == ""
    (repo / "data" / "set").write_text("2\n")
    (repo / "notes").write_text("not sent\n")
    assert tow("diff", "--names", "1").stdout == "M data/set\n"


def test_checkout_brings_the_version_back_whatever_happened_since(
    tow: Tow, repo: Path, tmp_path: Path
) -> None:
    make_dirty(repo)
    (repo / "tool").write_text("#!/bin/sh\n")
    (repo / "tool").chmod(0o755)
    (repo / "link").symlink_to("main.py")
    tow("run", "true")
    shutil.rmtree(repo)
    gone = complaint(tow("diff", "1", cwd=tmp_path), 2)
    assert "is gone" in gone and "tow checkout 1" in gone
    assert tow("checkout", "1", cwd=tmp_path).returncode == 0
    back = tmp_path / "job-1"
    assert (back / "main.py").read_text() == "print('second')\n"
    assert (back / "new ü").read_text() == "new\n"
    assert not (back / "notes").exists()
    assert (back / "tool").stat().st_mode & 0o111
    assert (back / "link").readlink() == Path("main.py")
    repo.mkdir()


def test_checkout_overwrites_nothing(tow: Tow, repo: Path) -> None:
    tow("run", "true")
    (repo / "full").mkdir()
    (repo / "full" / "mine").write_text("mine")
    assert "not an empty folder" in complaint(tow("checkout", "1", "full"), 2)
    assert (repo / "full" / "mine").read_text() == "mine"
    complaint(tow("checkout", "99", "new"), 2)
    assert not (repo / "new").exists()


def test_a_folder_without_git_has_versions_too(tow: Tow) -> None:
    (tow.folder / "a").write_text("one\n")
    tow("run", "true")
    (tow.folder / "a").write_text("two\n")
    assert "-one\n+two\n" in tow("diff", "1").stdout
    assert tow("checkout", "1", "back").returncode == 0
    assert (tow.folder / "back" / "a").read_text() == "one\n"
    found = show(tow, 1)
    assert (found["commit"], found["branch"]) == ("", "")
    assert tow("snapshots").returncode == 0


def test_include_and_exclude_choose_what_travels(tow: Tow, repo: Path) -> None:
    (repo / "data").mkdir()
    for name in ("data/big", "data/small", "run.log", "extra"):
        (repo / name).write_text(name)
    listing = ["find", ".", "-type", "f", "-not", "-name", ".gitignore"]
    found = tow("run", *listing).stdout.split()
    assert sorted(found) == ["./extra", "./main.py", "./notes"]
    words = ["--include", "/data/", "--exclude", "big", "--exclude", "notes"]
    found = tow("run", *words, *listing).stdout.split()
    assert sorted(found) == ["./data/small", "./extra", "./main.py"]
    (repo / "towline.toml").write_text('[snapshot]\ninclude = ["*.log"]\nexclude = ["extra"]\n')
    found = tow("run", *listing).stdout.split()
    assert sorted(found) == ["./main.py", "./notes", "./run.log", "./towline.toml"]


def test_too_much_is_refused_with_the_ten_largest_and_what_to_do(tow: Tow) -> None:
    (tow.folder / "towline.toml").write_text("[snapshot]\nlimit_mb = 1\n")
    for number in range(12):
        (tow.folder / f"part{number:02}").write_bytes(bytes(100_000 + 1000 * number))
    refused = tow("run", "true")
    assert refused.returncode == 2
    named = [line.split()[-1] for line in refused.stderr.splitlines() if "part" in line]
    assert named == [f"part{number:02}" for number in range(11, 1, -1)]
    assert ".towignore" in refused.stderr and "limit_mb" in refused.stderr
    assert tow.json("status")["jobs"] == []
    assert tow("run", "--exclude", "part0*", "true").returncode == 0
