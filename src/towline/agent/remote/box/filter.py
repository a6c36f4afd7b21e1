"""System calls that no job in a box may make: those that lead to keys of the account.

A program of the kernel's packet filter, as bytes. Namespaces keep the rest apart; this is for what
has none. Programs of another architecture than the machine's own are not run: their calls have
other numbers.
"""

import ctypes
import os
import struct

from .. import machine

#: machine -> architecture as the kernel names it; numbers of add_key, request_key and keyctl.
ARCHITECTURES = {
    "x86_64": (0xC000003E, (248, 249, 250)),
    "aarch64": (0xC00000B7, (217, 218, 219)),
    "ppc64le": (0xC0000015, (269, 270, 271)),
}
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
NUMBER, ARCHITECTURE = 0, 4
KILL, REFUSE, ALLOW = 0x80000000, 0x00050001, 0x7FFF0000
#: On x86_64, the same calls once more, with shorter addresses.
X32 = 0x40000000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


def step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def program(name: str) -> bytes:
    """For a machine of this name; one that lets everything pass where its numbers are unknown."""
    if name not in ARCHITECTURES:
        return step(RETURN, ALLOW)
    architecture, numbers = ARCHITECTURES[name]
    steps = [step(LOAD, ARCHITECTURE), step(EQUAL, architecture, 1, 0), step(RETURN, KILL)]
    steps.append(step(LOAD, NUMBER))
    if name == "x86_64":
        steps += [step(AT_LEAST, X32, 0, 1), step(RETURN, REFUSE)]
    for number in numbers:
        steps += [step(EQUAL, number, 0, 1), step(RETURN, REFUSE)]
    return b"".join(steps + [step(RETURN, ALLOW)])


def for_this_machine() -> bytes:
    return program(os.uname().machine)


def put_on() -> None:
    """Keep to it from now on, this process and all that it starts. Raises OSError."""
    code = for_this_machine()
    steps = ctypes.create_string_buffer(code, len(code))
    # A count, and where they are.
    head = struct.pack("HP", len(code) // 8, ctypes.addressof(steps))
    libc = ctypes.CDLL(None, use_errno=True)
    if not machine.prctl(PR_SET_NO_NEW_PRIVS, 1):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    filled = ctypes.create_string_buffer(head, len(head))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filled, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")
