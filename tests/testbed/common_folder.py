"""A folder of this machine that hosts see as well, as by a common file system."""

import subprocess
import sys

from testbed.hosts import Hosts

#: Takes a copy of the mount here, and puts it into place there.
_MOVE = """
import ctypes, os, sys
outside, inside, pid = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
HERE, CLONE, EMPTY_PATH = -100, 1, 4
def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
mount = checked(libc.syscall(428, HERE, outside.encode(), CLONE))
there = os.open("/proc/%s/ns/mnt" % pid, os.O_RDONLY)
checked(libc.setns(there, 0x20000))
os.makedirs(inside, exist_ok=True)
checked(libc.syscall(429, mount, b"", HERE, inside.encode(), EMPTY_PATH))
"""


def show(hosts: Hosts, name: str, outside: str, inside: str) -> None:
    """Mount the folder `outside` of this machine at `inside` of a host."""
    words = [sys.executable, "-c", _MOVE, outside, inside, str(hosts.pid(name))]
    subprocess.run(words, check=True)


def hide(hosts: Hosts, name: str, inside: str) -> None:
    """Unmount it; what is left is an ordinary folder."""
    host = f"--target={hosts.pid(name)}"
    subprocess.run(["nsenter", host, "--mount", "--pid", "umount", "--lazy", inside], check=True)
