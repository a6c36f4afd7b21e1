"""Passwords and other secrets: how they are kept, and how they are compared."""

import asyncio
import hashlib
import secrets

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from towline.errors import UsageError

SHORTEST = 8
LONGEST = 256
_TOKEN_PREFIX = "tow_"
#: One takes a core for a twentieth of a second, and 64 MB.
_AT_ONCE = 2


class Passwords:
    """Hashes passwords in threads, a few at a time: whoever floods us waits for themselves."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        #: What an unknown name is compared with, so that the answer takes as long.
        self._nobodys = self._hasher.hash(secrets.token_hex())

    async def hashed(self, password: str) -> str:
        async with self._turns:
            return await asyncio.to_thread(self._hasher.hash, check_password(password))

    async def matches(self, known: str, password: str) -> bool:
        """Whether it is the password; an empty hash is nobody's, and takes as long."""
        async with self._turns:
            right = await asyncio.to_thread(self._verify, known or self._nobodys, password)
        return right and bool(known)

    def _verify(self, known: str, password: str) -> bool:
        try:
            return self._hasher.verify(known, password.encode("utf-8", "surrogatepass"))
        except (VerificationError, InvalidHashError):
            return False


def hash_password(password: str) -> str:
    """The same for who has nothing else to do."""
    return PasswordHasher().hash(check_password(password))


def check_password(password: str) -> str:
    if not SHORTEST <= len(password) <= LONGEST:
        raise UsageError(f"a password has {SHORTEST} to {LONGEST} characters")
    return password


def new_secret() -> str:
    """What nobody can guess: a token, or an invitation."""
    return _TOKEN_PREFIX + secrets.token_urlsafe(32)


def digest_of(secret: str) -> bytes:
    """As which it is remembered. It has more chance in it than anybody can try: no salt needed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
