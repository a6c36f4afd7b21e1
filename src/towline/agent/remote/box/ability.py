"""Whether and how well this machine can wall in a job: found by doing it."""

import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time

from ..commands import process_tree
from ..machine import boot_id, read_text
from ..records import record
from . import arguments, limits, network, system
from .arguments import BoxPlan, Features
from .keeper import BoxKeeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..typed import Message

PLACES = (b"/usr/bin/bwrap", b"/bin/bwrap", b"/usr/local/bin/bwrap")
#: Options without which there is no box worth the name.
NEEDED = ("--args", "--cap-drop", "--clearenv", "--json-status-fd", "--perms", "--disable-userns")
TRIAL_S = 10.0
UNCONFINED = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
CLONE = "/proc/sys/kernel/unprivileged_userns_clone"
MOST = "/proc/sys/user/max_user_namespaces"


class Ability:
    """`why` there are no walls here, empty where there are; the rest is about those."""

    def __init__(self, why: str = "") -> None:
        self.why = why
        self.bwrap = b""
        self.features = Features()
        #: What gives a job a network of its own; or why nothing does.
        self.network = ""
        self.network_why = ""
        #: What bounds memory and CPUs; or why nothing does.
        self.limits = ""
        self.limits_why = ""
        self.groups: "list[str]" = []
        #: A trial failed that ought to succeed: it may do so the next time.
        self.in_doubt = False

    @classmethod
    def of(cls, note: "Message") -> "Ability":
        found = cls(note["why"])
        for name in ("network", "network_why", "limits", "limits_why", "groups"):
            setattr(found, name, note[name])
        found.bwrap = os.fsencode(note["bwrap"])
        found.features = Features(note["size"], not note["nesting"])
        return found

    def as_note(self) -> "Message":
        return dict(self.as_reply(), bwrap=os.fsdecode(self.bwrap), size=self.features.size)

    def as_reply(self) -> "Message":
        return {
            "why": self.why,
            "network": self.network,
            "network_why": self.network_why,
            "limits": self.limits,
            "limits_why": self.limits_why,
            "nesting": not self.features.no_nesting,
            "groups": self.groups,
        }


def look(places: "tuple[bytes, ...]" = PLACES) -> "Ability":
    """Takes some hundredths of a second; what it finds stays so until the machine restarts or is
    changed by its administrator."""
    bwrap = next((place for place in places if os.access(place, os.X_OK)), None)
    if bwrap is None:
        return Ability("bubblewrap is not installed: there is no bwrap in /usr/bin")
    if os.stat(bwrap).st_mode & stat.S_ISUID:
        return Ability("%s is setuid, which is not safe: chmod u-s" % os.fsdecode(bwrap))
    told = options_of(bwrap)
    lacking = [option for option in NEEDED if option not in told]
    if lacking and lacking != ["--disable-userns"]:
        return Ability("bubblewrap is too old here: it has no %s" % lacking[0])
    ability = Ability()
    ability.bwrap = bwrap
    ability.features = Features("--size" in told, not lacking)
    ability.why = trial(ability, False)
    if ability.why and ability.features.no_nesting:
        ability.features.no_nesting = False
        ability.why = trial(ability, False) and ability.why
    if ability.why:
        ability.why = "bubblewrap makes no box here: %s" % explained(ability.why)
        ability.in_doubt = True
        return ability
    look_at_network(ability)
    ability.limits, ability.limits_why = limits.look()
    ability.groups = system.mighty_groups()
    return ability


def look_at_network(ability: "Ability") -> None:
    name = network.program()
    if name is None:
        ability.network_why = "slirp4netns is not installed"
    elif not os.access(network.TUN, os.R_OK | os.W_OK):
        ability.network_why = "%s cannot be opened by this account" % network.TUN
    else:
        ability.network_why = trial(ability, True) and trial(ability, True)
        ability.in_doubt = bool(ability.network_why)
    if name is not None and not ability.network_why:
        ability.network = os.path.basename(os.fsdecode(name))


def options_of(bwrap: bytes) -> "set[str]":
    """Whatever its version says, distributions add some."""
    try:
        told = subprocess.run(
            [bwrap, "--help"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TRIAL_S,
        )
    except (OSError, subprocess.SubprocessError):
        return set()
    words = told.stdout.decode("utf-8", "replace").split()
    return {word for word in words if word.startswith("--")}


def trial(ability: "Ability", own_network: bool) -> str:
    """Why a box of the very kind that jobs get does not come up; empty where it does."""
    folder = tempfile.mkdtemp(prefix="tow-box-")
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        plan = BoxPlan(b"trial", {}, [], b"/", own_network, system.private_bytes())
        words = arguments.arguments(plan, system.look(), ability.features)
        keeper = BoxKeeper(folder, ability.bwrap, plan, words, [b"/bin/true"])
        pid = keeper.start(null, null, null)
        keeper.release()
        if wait_for(pid) == 0:
            return ""
        said = read_text(folder + "/mark").strip()
        return said[len("box ") :] if said.startswith("box ") else "it did not come up"
    except (OSError, ValueError) as problem:
        return str(problem)
    finally:
        os.close(null)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(pid: int) -> int:
    """Its status; it is killed where it takes too long."""
    until = time.monotonic() + TRIAL_S
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() > until:
            process_tree.send(pid, signal.SIGKILL)
        time.sleep(0.002)


def explained(said: str) -> str:
    """What bubblewrap said, and what an administrator can do about it."""
    said = said.replace("bwrap: ", "", 1)
    if read_text(UNCONFINED).strip() == "1":
        return said + "; AppArmor lets only named programs make user namespaces: see docs"
    if read_text(CLONE).strip() == "0" or read_text(MOST).strip() == "0":
        return said + "; this machine lets nobody but root make user namespaces"
    return said


#: In our folder on the machine: what was found last, and of what it depends.
FOUND = "/walls.json"


def ability(root: str) -> "Ability":
    """What was found last, as noted in `root`; looked for again where the machine restarted, or
    bubblewrap or the way out was installed or changed since."""
    marks = [boot_id(), os.getuid(), sorted(os.getgroups())] + [
        changed(place) for place in PLACES + (network.program() or b"", network.TUN.encode())
    ]
    try:
        with open(root + FOUND, "rb") as file:
            noted = json.loads(file.read().decode("ascii"))
        if noted["marks"] == marks:
            return Ability.of(noted["found"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    found = look()
    if found.in_doubt:
        return found
    try:
        about = {"marks": marks, "found": found.as_note()}
        record.write_whole(root + FOUND, json.dumps(about).encode("ascii"))
    except OSError:
        pass  # the next one looks again
    return found


def changed(place: bytes) -> "list[float]":
    try:
        facts = os.stat(place)
    except OSError:
        return []
    return [facts.st_mtime, facts.st_mode, facts.st_uid, facts.st_gid]
