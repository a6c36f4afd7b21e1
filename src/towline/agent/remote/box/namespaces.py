"""Namespaces of other processes, which Python has no names for."""

import ctypes
import fcntl
import os

USER, NET, MOUNT = 0x10000000, 0x40000000, 0x00020000
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
#: The user namespace that owns another: an ioctl on that other's file.
NS_GET_USERNS = 0xB701


def of(pid: int, name: str) -> int:
    return os.open("/proc/%d/ns/%s" % (pid, name), os.O_RDONLY | os.O_CLOEXEC)


def owner_of(fd: int) -> int:
    return int(fcntl.ioctl(fd, NS_GET_USERNS))


def is_ours(fd: int, name: str) -> bool:
    return os.fstat(fd).st_ino == os.stat("/proc/self/ns/" + name).st_ino


def enter(fd: int, kind: int, name: str) -> None:
    """Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).setns(fd, kind):
        number = ctypes.get_errno()
        raise OSError(number, "%s namespace: %s" % (name, os.strerror(number)))


def own_mounts() -> None:
    """Have mounts of our own from now on. What root unmounts is unmounted for the whole machine
    otherwise: slirp4netns leaves every mount when it locks itself in. Others cannot, and are not
    asked for: what they leave is nobody else's. Raises OSError."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(MOUNT) or libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None):
        number = ctypes.get_errno()
        raise OSError(number, "mount namespace: %s" % os.strerror(number))
