"""Facts about this machine, and the few kernel calls Python has no name for."""

import ctypes
import os
import socket
import sys

PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def prctl(option, value):
    """True when the kernel took it; a kernel or libc without it is no reason to stop."""
    try:
        return ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def become_subreaper():
    """Orphaned descendants become our children instead of init's."""
    return prctl(PR_SET_CHILD_SUBREAPER, 1)


def set_name(name):
    prctl(PR_SET_NAME, ctypes.c_char_p(name))


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def boot_id():
    return read_text("/proc/sys/kernel/random/boot_id").strip()


def usable_cpus():
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def user_name():
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return os.environ.get("USER", str(os.getuid()))


def home_folder():
    return os.path.expanduser("~")


def own_address():
    """The address the other side reached us at, as sshd tells it."""
    fields = os.environ.get("SSH_CONNECTION", "").split()
    return fields[2] if len(fields) > 2 else ""


def describe():
    return {
        "pid": os.getpid(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "hostname": socket.gethostname(),
        "boot": boot_id(),
        "user": user_name(),
        "home": to_text(home_folder()),
        "address": own_address(),
        "cpus": usable_cpus(),
    }


def to_text(path):
    """A file name as it travels: UTF-8, other bytes as surrogates, whatever the locale is here."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def to_path(text):
    """The reverse of `to_text`."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def oom_kills():
    """How often the kernel killed for memory so far, on the machine and in our control group."""
    count = 0
    for line in read_text("/proc/vmstat").splitlines():
        if line.startswith("oom_kill "):
            count += int(line.split()[1])
    for line in read_text("/proc/self/cgroup").splitlines():
        if not line.startswith("0::"):
            continue  # a controller of the first version, which has no such counter
        group = line.split(":", 2)[-1]
        for event in read_text("/sys/fs/cgroup%s/memory.events" % group).splitlines():
            if event.startswith("oom_kill "):
                count += int(event.split()[1])
    return count
