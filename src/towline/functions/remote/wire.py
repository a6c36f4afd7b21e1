"""Frames between a program and its workers, each signed with a key that only these two have.

Whoever else reaches the port, here or over there, can neither have anything called nor pass off
anything as a result: both sides prove that they have the key, and every frame is signed with its
place in the stream, by a key that was made for this connection.
"""

import hashlib
import hmac
import os
import socket
import struct
from typing import Any

KEY_BYTES = 32
#: The variable in which the key travels: variables are shown to nobody.
KEY_VARIABLE = "TOWLINE_CALL_KEY"
_NONCE = 32
_MAC = 16
#: Length of what follows, its signature; then what it is, and of which call.
_HEAD = struct.Struct(">Q16s")
_ABOUT = struct.Struct(">cQ")
#: The program's words: a call; these calls are waited for; a result arrived; there is no more.
CALL, KNOWN, HAVE, END = b"C", b"K", b"H", b"E"
#: The worker's words: the value of a call; what it raised; the calls that it does not know.
VALUE, RAISED, LACKING = b"V", b"R", b"L"
Frame = tuple[bytes, int, bytes]


def own_key() -> bytes:
    """The key that travelled with this job; nothing that it starts gets it."""
    return bytes.fromhex(os.environ.pop(KEY_VARIABLE))


class Forged(Exception):
    """What arrived is not from the other side."""


class Closed(Exception):
    """The connection is over."""


def signature(key: bytes, *parts: bytes) -> bytes:
    made = hashlib.blake2b(key=key, digest_size=_MAC)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.digest()


def key_of(key: bytes, number: int) -> bytes:
    """The key of one of several workers that were submitted together: none speaks for another."""
    return hashlib.blake2b(number.to_bytes(8, "big"), key=key, digest_size=KEY_BYTES).digest()


class Channel:
    """One connection, after both sides have shown that they have the key."""

    def __init__(self, connection: socket.socket, key: bytes, *, is_worker: bool) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb", 1 << 16)
        try:
            nonces = self._greet(key, is_worker)
        except BaseException:
            self.close()
            raise
        roles = [b"worker", b"program"] if is_worker else [b"program", b"worker"]
        self._send_key, self._receive_key = (
            hashlib.blake2b(role + nonces, key=key, digest_size=32).digest() for role in roles
        )
        self._sent = self._received = 0

    def _greet(self, key: bytes, is_worker: bool) -> bytes:
        """Exchange what nobody knew before, and check that the other side signs it."""
        mine = os.urandom(_NONCE)
        self._send(mine)
        theirs = self._exactly(_NONCE)
        nonces = mine + theirs if is_worker else theirs + mine
        own, other = (b"worker", b"program") if is_worker else (b"program", b"worker")
        if not is_worker:
            # Whoever asks shows first that it has the key.
            self._send(signature(key, own, nonces))
        said = self._exactly(_MAC)
        if not hmac.compare_digest(said, signature(key, other, nonces)):
            raise Forged("the other side does not have the key of this worker")
        if is_worker:
            self._send(signature(key, own, nonces))
        return nonces

    def send(self, kind: bytes, number: int, *parts: bytes) -> None:
        """Send one frame; not from two threads at a time."""
        body = b"".join((_ABOUT.pack(kind, number), *parts))
        place = self._sent.to_bytes(8, "big")
        self._sent += 1
        head = _HEAD.pack(len(body), signature(self._send_key, place, body))
        self._send(head + body)

    def receive(self) -> Frame:
        size, signed = _HEAD.unpack(self._exactly(_HEAD.size))
        body = self._exactly(size)
        place = self._received.to_bytes(8, "big")
        self._received += 1
        if not hmac.compare_digest(signed, signature(self._receive_key, place, body)):
            raise Forged("a frame was not signed by the other side")
        kind, number = _ABOUT.unpack_from(body)
        return kind, number, body[_ABOUT.size :]

    def close(self) -> None:
        # Not `close` alone: another thread may be reading.
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._connection.close()
        # As long as it is open, the connection is.
        self._reader.close()

    def _send(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise Closed(str(error)) from None

    def _exactly(self, size: int) -> bytes:
        try:
            data: bytes = self._reader.read(size)
        except (OSError, ValueError) as error:
            raise Closed(str(error)) from None
        if len(data) < size:
            raise Closed("the connection was closed")
        return data


def numbers_in(payload: bytes) -> list[int]:
    """The calls that a frame names."""
    return [number for (number,) in struct.iter_unpack(">Q", payload)]


def named(numbers: Any) -> bytes:
    return b"".join(number.to_bytes(8, "big") for number in numbers)


def packed(key: bytes, kind: bytes, number: int, payload: bytes) -> bytes:
    """A result as it is kept in a file, with a signature of its own."""
    body = _ABOUT.pack(kind, number) + payload
    return _HEAD.pack(len(body), signature(key, body)) + body


def unpacked(key: bytes, data: bytes) -> list[Frame]:
    """The results that were kept in a file."""
    found, place = [], 0
    while place < len(data):
        size, signed = _HEAD.unpack_from(data, place)
        place += _HEAD.size
        body = data[place : place + size]
        place += size
        if not hmac.compare_digest(signed, signature(key, body)):
            raise Forged("a result was not signed by its worker")
        kind, number = _ABOUT.unpack_from(body)
        found.append((kind, number, body[_ABOUT.size :]))
    return found
