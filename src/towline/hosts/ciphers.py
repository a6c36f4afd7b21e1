"""Which encryption to ask ssh for: the one that processors have instructions for.

OpenSSH prefers ChaCha20 everywhere; AES-GCM is as safe and, with such instructions, several times
faster, which a large transfer is glad of. Whoever set `Ciphers` anywhere gets what they set.
"""

import asyncio
import sys
from functools import cache

_FAST = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
#: `ssh -G` reads files and may run what a `Match exec` says; it is not worth waiting long for.
_PATIENCE_S = 5.0


async def faster_ciphers(question: list[str]) -> list[str]:
    """What `-o Ciphers=` is to list; empty: leave it to ssh. `question` is an `ssh -G` argv."""
    if not _has_aes():
        return []
    plain = [question[0], "-F", "/dev/null", "-G", "--", "anywhere"]
    told, untouched = await asyncio.gather(_ciphers(question), _ciphers(plain))
    return reordered(told) if told == untouched else []


def reordered(ciphers: list[str]) -> list[str]:
    """The same ciphers, the fast ones first; empty if there is none of these."""
    fast = [cipher for cipher in _FAST if cipher in ciphers]
    return fast and fast + [cipher for cipher in ciphers if cipher not in fast]


async def _ciphers(question: list[str]) -> list[str]:
    """Those ssh would offer, best first; empty if it does not say."""
    try:
        asking = await asyncio.create_subprocess_exec(
            *question,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return []
    try:
        answer, _ = await asyncio.wait_for(asking.communicate(), _PATIENCE_S)
    except TimeoutError:
        return []
    finally:
        if asking.returncode is None:
            asking.kill()
            await asking.wait()
    for line in answer.decode(errors="replace").splitlines():
        word, _, value = line.partition(" ")
        if word == "ciphers":
            return value.split(",")
    return []


@cache
def _has_aes() -> bool:
    """Whether this processor has instructions for AES."""
    if sys.platform == "darwin":
        return True  # every Mac since 2011
    try:
        with open("/proc/cpuinfo") as file:
            about = file.read()
    except OSError:
        return False
    features = [line for line in about.splitlines() if line.startswith(("flags", "Features"))]
    return any("aes" in line.split() for line in features)
