"""What `tow mount` shows below a project does not travel with the next job."""

from pathlib import Path

import pytest

from towline.snapshot.mounts import mounted_jobs

from .conftest import Taking, git, paths

TEXT = (
    "36 35 98:0 / /home/me/project/data rw - ext4 /dev/sda1 rw\n"
    "37 35 0:50 / /home/me/project/job-12 ro,nosuid - fuse tow-12 ro,user_id=0\n"
    "38 35 0:51 / /home/me/project/a/with\\040space ro shared:3 - fuse tow-13 ro\n"
    "39 35 0:52 / /home/me/project/photos rw - fuse.sshfs me@nas:/photos rw\n"
    "40 35 0:53 / /home/me/projects/job-14 ro - fuse tow-14 ro\n"
    "41 35 0:54 / /home/me/project ro - fuse tow-15 ro\n"
    "odd\n"
)


def test_only_folders_of_jobs_below_the_project_are_found() -> None:
    assert mounted_jobs(TEXT, "/home/me/project") == ["job-12", "a/with space"]
    assert len(mounted_jobs(TEXT, "/")) == 4


@pytest.mark.parametrize("with_git", [False, True])
def test_what_is_mounted_does_not_travel(
    take: Taking, plain: Path, monkeypatch: pytest.MonkeyPatch, with_git: bool
) -> None:
    if with_git:
        git(plain, "init", "-q")
    for name in ("main.py", "job [1]/log", "a/job-2/log", "a/other", "job 1/log"):
        (plain / name).parent.mkdir(parents=True, exist_ok=True)
        (plain / name).write_text(name)
    mounts = ["job [1]", "a/job-2"]
    monkeypatch.setattr("towline.snapshot.folder.job_folders", lambda root: mounts)
    assert paths(take(plain)) == ["a/other", "job 1/log", "main.py"]
    monkeypatch.setattr("towline.snapshot.git.literal", lambda path: "no such path")
    assert paths(take(plain)) == ["a/other", "job 1/log", "main.py"]
