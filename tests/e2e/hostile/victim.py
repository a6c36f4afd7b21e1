"""A job that has something to lose: it opens all that others could reach, says where, and waits."""

import ctypes
import json
import os
import socket
import sys
import time

SECRET = b"the victim's secret"
libc = ctypes.CDLL(None, use_errno=True)


def shared_memory() -> int:
    key = os.getpid() | 0x700000
    number = libc.shmget(key, 4096, 0o1600)
    libc.shmat.restype = ctypes.c_void_p
    ctypes.memmove(libc.shmat(number, None, 0), SECRET, len(SECRET))
    return key


def main() -> None:
    name = f"victim-{os.getpid()}"
    for path in ("secret", "/dev/shm/" + name, "/tmp/" + name):
        with open(path, "wb") as file:
            file.write(SECRET)
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0" + name)
    abstract.listen(5)
    port = socket.socket()
    port.bind(("127.0.0.1", 0))
    port.listen(5)
    everywhere = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    everywhere.bind(("127.0.0.1", 0))
    # KEY_SPEC_SESSION_KEYRING and KEY_SPEC_USER_KEYRING
    keys = [
        libc.syscall(248, b"user", name.encode(), SECRET, len(SECRET), ring) for ring in (-3, -4)
    ]
    secret = ctypes.create_string_buffer(SECRET)
    facts = {
        "pid": os.getpid(),
        "uid": os.getuid(),
        "name": name,
        "port": port.getsockname()[1],
        "shm": shared_memory(),
        "keys": keys,
        "memory": ctypes.addressof(secret),
        "job": os.environ["JOB_DIR"],
        "home": os.path.expanduser("~"),
        "root": os.path.dirname(os.path.dirname(os.environ["JOB_DIR"])),
    }
    # In one write: whoever waits for the line gets all of it.
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
    time.sleep(600)


main()
