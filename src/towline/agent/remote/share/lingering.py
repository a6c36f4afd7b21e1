"""Whether systemd ends what a user left running, once they have logged out everywhere."""

import os

from ..machine import read_text, user_name

#: Later ones win.
PLACES = ("/usr/lib/systemd", "/usr/local/lib/systemd", "/run/systemd", "/etc/systemd")


def ends_jobs(top: str = "", user: str = "") -> bool:
    user = user or user_name()
    if not os.path.isdir(top + "/run/systemd/system"):
        return False
    said = settings(top)
    if said.get("KillUserProcesses", "no").lower() not in ("yes", "true", "on", "1"):
        return False
    only, never = said.get("KillOnlyUsers", "").split(), said.get("KillExcludeUsers", "root")
    if (only and user not in only) or user in never.split():
        return False
    return not os.path.exists(top + "/var/lib/systemd/linger/" + user)


def settings(top: str) -> "dict[str, str]":
    """What is set for logins: by the main file, and by files beside it, in the order of names."""
    files = [top + place + "/logind.conf" for place in PLACES]
    beside = {}
    for place in PLACES:
        folder = top + place + "/logind.conf.d"
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if name.endswith(".conf"):
                beside[name] = folder + "/" + name
    found = {}
    for path in files + [beside[name] for name in sorted(beside)]:
        for line in read_text(path).splitlines():
            name, equals, value = line.strip().partition("=")
            if equals and name[:1] not in ("#", ";"):
                found[name.strip()] = value.strip()
    return found
