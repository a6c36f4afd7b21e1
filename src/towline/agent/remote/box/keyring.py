"""The session's keyring: what a job must not share with us."""

import ctypes
import os

#: machine -> number of the call `keyctl`
CALLS = {"x86_64": 250, "aarch64": 219, "ppc64le": 271}
JOIN_SESSION_KEYRING = 1


def leave() -> None:
    """Have a fresh one; without, a job could read what the login of its machine keeps there."""
    number = CALLS.get(os.uname().machine)
    if number is not None:
        ctypes.CDLL(None).syscall(number, JOIN_SESSION_KEYRING, None)
