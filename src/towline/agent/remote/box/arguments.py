"""What bubblewrap is told of a box: pure, from a description to words.

All of it travels through a file: its own words and environment can be read from inside.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

    from ..typed import Environ

#: Numbers of the files that bubblewrap is started with. The first two are for the shell inside,
#: which closes them; bubblewrap itself closes the others.
MARK, ERRORS = 8, 9
ARGUMENTS, PASSWD, GROUP, FILTER, STATUS, BLOCK, RESOLV = range(10, 17)

NAMESPACES = ("user", "pid", "ipc", "uts", "cgroup-try")
#: What programs look up in /etc; keys, accounts and what services are told are not among it.
FROM_ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "default/locale",
    "fonts", "gai.conf", "host.conf", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
    "locale.alias", "locale.conf", "localtime", "lsb-release", "magic", "mime.types", "netconfig",
    "nsswitch.conf", "nvidia", "OpenCL", "os-release", "pki", "profile", "protocols", "rpc",
    "services", "ssl", "terminfo", "timezone", "vulkan",
)  # fmt: skip
#: CUDA looks at these, and is nothing without them.
FOR_GPUS = ("/sys/bus/pci", "/sys/devices", "/sys/module", "/sys/class/drm", "/sys/class/kfd")
#: What root may write without any capability, and would rule the machine by: bubblewrap leaves it
#: as it is.
COVERED = tuple("/proc/" + name for name in ("sys", "sysrq-trigger", "irq", "bus", "acpi", "fs"))
PRIVATE = (b"/dev/shm", b"/tmp", b"/var/tmp")


class System:
    """What of this machine every box shows, as it was found."""

    def __init__(
        self, folders: "Iterable[bytes]", links: "dict[bytes, bytes]", devices: "list[bytes]" = []
    ) -> None:
        #: Read-only at their own places, such as /usr; and links beside them: place -> target.
        self.folders = list(folders)
        self.links = links
        #: Device files of the GPUs that the job was granted.
        self.devices = devices


class Features:
    """What this bubblewrap can, and what the machine lets it."""

    def __init__(self, size: bool = True, no_nesting: bool = True) -> None:
        #: Its memory-backed folders can be bounded.
        self.size = size
        #: Programs inside can be kept from making user namespaces.
        self.no_nesting = no_nesting


class BoxPlan:
    """One box. Paths and words are bytes."""

    def __init__(
        self,
        name: bytes,
        environ: "Environ",
        binds: "list[tuple[bytes, bytes, str]]",
        folder: bytes,
        own_network: bool,
        private_bytes: int,
    ) -> None:
        self.name = name
        self.environ = environ
        self.binds = binds
        #: Where it begins; read by the shell inside.
        self.folder = folder
        self.own_network = own_network
        #: So much fits into each of its private folders in memory.
        self.private_bytes = private_bytes
        #: Numbers to appear with, where those of the caller are not what they seem.
        self.identity: "tuple[int, int] | None" = None


def arguments(plan: "BoxPlan", system: "System", features: "Features") -> "list[bytes]":
    """In the order in which bubblewrap makes it: what comes later lies above."""
    words = namespaces(plan, features)
    words += [b"--hostname", plan.name, b"--clearenv"]
    for variable in sorted(plan.environ):
        words += [b"--setenv", variable, plan.environ[variable]]
    words += the_system(system)
    words += accounts_and_names(plan)
    words += [b"--proc", b"/proc", b"--dev", b"/dev"]
    for place in COVERED:
        words += [b"--ro-bind-try", place.encode(), place.encode()]
    for device in system.devices:
        words += [b"--dev-bind-try", device, device]
    if system.devices:
        for place in FOR_GPUS:
            words += [b"--ro-bind-try", place.encode(), place.encode()]
    words += private_folders(plan, features)
    words += [b"--dir", b"/run"]
    for outside, inside, mode in plan.binds:
        words += [b"--bind" if mode == "rw" else b"--ro-bind", outside, inside]
    words += [b"--remount-ro", b"/dev", b"--remount-ro", b"/", b"--chdir", b"/"]
    words += [b"--seccomp", b"%d" % FILTER, b"--json-status-fd", b"%d" % STATUS]
    return words + [b"--block-fd", b"%d" % BLOCK]


def namespaces(plan: "BoxPlan", features: "Features") -> "list[bytes]":
    words = [b"--unshare-" + name.encode() for name in NAMESPACES]
    if plan.own_network:
        words.append(b"--unshare-net")
    if features.no_nesting:
        words.append(b"--disable-userns")
    if plan.identity is not None:
        words += [b"--uid", b"%d" % plan.identity[0], b"--gid", b"%d" % plan.identity[1]]
    return words + [b"--cap-drop", b"ALL", b"--die-with-parent", b"--new-session"]


def the_system(system: "System") -> "list[bytes]":
    words = []
    for folder in system.folders:
        words += [b"--ro-bind", folder, folder]
    for place, target in sorted(system.links.items()):
        words += [b"--symlink", target, place]
    for name in FROM_ETC:
        path = b"/etc/" + name.encode()
        words += [b"--ro-bind-try", path, path]
    return words


def accounts_and_names(plan: "BoxPlan") -> "list[bytes]":
    """Accounts of the machine are nobody's business; a network of its own has names of its own."""
    words = []
    for number, path in ((PASSWD, b"/etc/passwd"), (GROUP, b"/etc/group")):
        words += [b"--perms", b"0444", b"--file", b"%d" % number, path]
    if plan.own_network:
        return words + [b"--perms", b"0444", b"--file", b"%d" % RESOLV, b"/etc/resolv.conf"]
    return words + [b"--ro-bind-try", b"/etc/resolv.conf", b"/etc/resolv.conf"]


def private_folders(plan: "BoxPlan", features: "Features") -> "list[bytes]":
    words = []
    for place in PRIVATE:
        words += [b"--perms", b"1777"]
        if features.size:
            words += [b"--size", b"%d" % plan.private_bytes]
        words += [b"--tmpfs", place]
    return words


def packed(words: "list[bytes]") -> bytes:
    """As bubblewrap reads them from a file. Raises ValueError."""
    if any(b"\0" in word for word in words):
        raise ValueError("an argument or variable contains a NUL byte")
    if len(words) > MOST_WORDS:
        raise ValueError("a box cannot have so many variables: %d" % (len(words) // 3))
    return b"".join(word + b"\0" for word in words)


#: Bubblewrap's own limit is 9000.
MOST_WORDS = 8900

#: The first program inside. What bubblewrap itself has to say goes elsewhere than the job's errors.
BEGIN = b"""\
exec 2>&9 9>&-
[ -d "$1" ] || /bin/mkdir -p -- "$1"
cd -- "$1" || exit 126
shift
exec "$@"
"""
#: The last one before the command: whether it is there can be told only from inside.
CHECK = b"""\
fail() { echo "$1" >&8; exit "$2"; }
case $1 in
  */*) [ -x "$1" ] && [ ! -d "$1" ] ||
    { [ -e "$1" ] && fail not_executable 126; fail not_found 127; } ;;
  *) command -v -- "$1" > /dev/null 2>&1 || fail not_found 127 ;;
esac
unset -f fail
exec 8>&-
exec "$@"
"""


def inside(argv: "list[bytes]", folder: bytes) -> "list[bytes]":
    """The command line that bubblewrap is given, behind `--`."""
    return [b"/bin/sh", b"-c", BEGIN, b"sh", folder] + argv


def checked_inside(argv: "list[bytes]") -> "list[bytes]":
    """The same command; one that is not there is told as such."""
    return [b"/bin/sh", b"-c", CHECK, b"sh"] + argv
