"""What a box shows of this machine, as it is found here."""

import glob
import os
import pwd

from .arguments import System

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

#: Where they are folders of their own, not links into /usr, they are shown as such.
BESIDE_USR = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
MORE = ("/opt", "/nix", "/gnu/store", "/snap")
#: Of every job with a GPU of this make; the second names each GPU's own.
FOR_ALL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps")
ABOUT_GPUS = "/proc/driver/nvidia/gpus"
AMD = "/dev/kfd"
#: Members of these are as good as root, or read whole disks; a box does not take that from them.
TOO_MIGHTY = ("docker", "disk", "sudo", "wheel", "lxd", "incus-admin", "libvirt", "kvm", "shadow")
BOUNDED_PART, LEAST_BOUND = 4, 64 << 20


def look(gpus: "Iterable[str]" = (), root: str = "") -> "System":
    """`gpus`: identities of those that the job was granted; `root` is for tests."""
    folders, links = [b"/usr"], {}
    for name in BESIDE_USR:
        place = "%s/%s" % (root, name)
        if os.path.islink(place):
            links[b"/" + name.encode()] = os.fsencode(os.readlink(place))
        elif os.path.isdir(place):
            folders.append(b"/" + name.encode())
    folders += [os.fsencode(place) for place in MORE if os.path.isdir(root + place)]
    return System(folders, links, [os.fsencode(device) for device in devices(list(gpus), root)])


def devices(gpus: "list[str]", root: str = "") -> "list[str]":
    """The device files of these GPUs, and those that each of them needs."""
    found = [path for gpu, path in numbered(root).items() if gpu in gpus]
    if found:
        found += [place for place in FOR_ALL if os.path.exists(root + place)]
    return found


def numbered(root: str = "") -> "dict[str, str]":
    """GPU -> its device file; the driver's own numbers, which are not those of `nvidia-smi`."""
    found = {}
    for about in glob.glob(root + ABOUT_GPUS + "/*/information"):
        facts = {}
        with open(about) as file:
            for line in file:
                name, _, value = line.partition(":")
                facts[name.strip()] = value.strip()
        if facts.get("GPU UUID") and facts.get("Device Minor", "").isdigit():
            found[facts["GPU UUID"]] = "/dev/nvidia" + facts["Device Minor"]
    return found


def account() -> "tuple[str, str]":
    """Our own lines for /etc/passwd and /etc/group; the name is known, and nobody else's is."""
    uid, gid = os.getuid(), os.getgid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = "job"
    # Whoever owns what is not ours appears as nobody.
    users = "%s:x:%d:%d::%s:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
    groups = "%s:x:%d:\nnogroup:x:65534:\n"
    return users % (name, uid, gid, "/tmp"), groups % (name, gid)


def user_name() -> str:
    return account()[0].partition(":")[0]


def mighty_groups() -> "list[str]":
    """Groups of this account that let a job reach around its walls."""
    import grp

    found = []
    for number in os.getgroups():
        try:
            name = grp.getgrgid(number).gr_name
        except KeyError:
            continue
        if name in TOO_MIGHTY:
            found.append(name)
    return sorted(found)


def private_bytes() -> int:
    """So much of the memory may be in each private folder of a job."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return LEAST_BOUND
    return max(LEAST_BOUND, memory // BOUNDED_PART)
