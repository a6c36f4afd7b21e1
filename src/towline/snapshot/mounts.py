"""Where `tow mount` shows the folders of jobs: these are no part of a project."""

import re

_MOUNTS = "/proc/self/mountinfo"


def job_folders(root: str) -> list[str]:
    """The paths below `root` at which the folder of a job is shown."""
    try:
        with open(_MOUNTS, errors="surrogateescape") as file:
            return mounted_jobs(file.read(), root)
    except OSError:
        return []


def mounted_jobs(text: str, root: str) -> list[str]:
    """The same, from what the system says of its mounts."""
    found = []
    for line in text.splitlines():
        place, _, kind = line.partition(" - ")
        words, about = place.split(" "), kind.split(" ")
        if len(words) < 5 or len(about) < 2:
            continue
        is_job = about[0].startswith("fuse") and about[1].startswith("tow-")
        path = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), words[4])
        if is_job and path.startswith(root.rstrip("/") + "/"):
            found.append(path.removeprefix(root.rstrip("/") + "/"))
    return found
