"""A network of a job's own, with a way out that does not lead to this machine's loopback."""

import os
import select
import signal
import time

from .. import machine
from ..commands import process, process_tree
from . import namespaces

TUN = "/dev/net/tun"
#: Names are asked of slirp4netns itself, at this address.
RESOLV_CONF = b"nameserver 10.0.2.3\n"
READY_S, LOOK_S = 10.0, 0.001
PROGRAMS = (b"slirp4netns",)


def program() -> "bytes | None":
    """What can make a way out here."""
    for name in PROGRAMS:
        for folder in (b"/usr/bin", b"/usr/local/bin", b"/bin"):
            if os.access(folder + b"/" + name, os.X_OK):
                return folder + b"/" + name
    return None


def words(name: bytes, pid: int, owner: int, ready: int) -> "list[bytes]":
    """What it is told: without the second and third option, a job reaches our loopback by 10.0.2.2,
    and a hole in it is a hole in the machine."""
    return [
        name,
        b"--configure",
        b"--disable-host-loopback",
        b"--enable-sandbox",
        b"--enable-seccomp",
        b"--mtu=65520",
        b"--ready-fd=%d" % ready,
        b"--userns-path=/proc/self/fd/%d" % owner,
        b"%d" % pid,
        b"tap0",
    ]


def await_users(init: int) -> None:
    """Until it is written who is who inside, groups last. Bubblewrap tells of its first process
    before that, and before it has made the loopback: whoever comes too early breaks both. Raises
    ValueError."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        try:
            with open("/proc/%d/gid_map" % init) as file:
                if file.read().strip():
                    return
        except OSError:
            break
        time.sleep(LOOK_S)
    raise ValueError("the users of the job's box were not made known")


def open_way_out(init: int, errors: int) -> None:
    """Start what keeps the way out of the box whose first process is `init`: it ends with us.
    Raises OSError, and ValueError where it does not come up."""
    name = program()
    if name is None:
        raise ValueError("there is no slirp4netns on this machine")
    await_users(init)
    net = namespaces.of(init, "net")
    owner = namespaces.owner_of(net)
    holder = hold(owner, net)
    told, tell = os.pipe()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        start(words(name, holder, owner, tell), [owner, tell], null, errors)
        os.close(tell)
        if not came(told, READY_S):
            raise ValueError("slirp4netns did not make a way out of the job's network")
    finally:
        process_tree.send(holder, signal.SIGKILL)
        for fd in (net, owner, told, null):
            os.close(fd)


def hold(owner: int, net: int) -> int:
    """A process of ours that is in the network of a box and among the users that own it. The first
    process inside soon has users of its own, among whom slirp4netns cannot be root."""
    told, tell = os.pipe()
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            machine.die_with_parent()
            if not namespaces.is_ours(owner, "user"):
                namespaces.enter(owner, namespaces.USER, "user")
            namespaces.enter(net, namespaces.NET, "net")
            os.write(tell, b"x")
            while os.getppid() == keeper:
                signal.pause()
        finally:
            os._exit(0)
    os.close(tell)
    try:
        if not came(told, READY_S):
            raise ValueError("the job's network cannot be entered")
    finally:
        os.close(told)
    return pid


def start(argv: "list[bytes]", handed: "list[int]", null: int, errors: int) -> None:
    keeper = os.getpid()
    if os.fork():
        return
    try:
        machine.die_with_parent()
        for fd in handed:
            os.set_inheritable(fd, True)
        namespaces.own_mounts()
        if os.getppid() == keeper:
            process.become(argv[0], argv, {}, null, null, errors)
    finally:
        os._exit(127)


def came(fd: int, seconds: float) -> bool:
    """Whether a byte came before the time was over and before the other end was closed."""
    until = time.monotonic() + seconds
    left = seconds
    while left > 0:
        ready, _, _ = select.select([fd], [], [], left)
        if ready:
            return bool(os.read(fd, 16))
        left = until - time.monotonic()
    return False
