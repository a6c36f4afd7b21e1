"""The way to ports of a node on which a queue runs a job, from where the queue is reached.

The relay runs beside the job, is the only thing that listens on the node's network, and leads to
ports of the node's loopback; only those are let through who know the secret that it wrote into the
job's folder. The secret itself never travels: each connection is challenged.
"""

import hashlib
import hmac
import json
import os
import select
import signal
import socket
import struct
import threading

from .. import machine
from ..commands import process_tree
from ..records import record
from ..refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..typed import Command

LOOK_S = 5.0
HANDSHAKE_S = 10.0
MOST_CONNECTIONS = 128
PIECE = 64 << 10
CHALLENGE = 16
PORT = struct.Struct(">H")
YES, NO = b"\0", b"\1"
FILE, WANTED = "/relay", "/relay.wanted"


def answer_to(challenge: bytes, secret: bytes, port: int) -> bytes:
    """What proves that we know the secret, and says where to."""
    word = PORT.pack(port)
    return word + hmac.new(secret, challenge + word, hashlib.sha256).digest()


# On the node


class Relay:
    """`command` is (pid, start) of the job's command, whose end is ours."""

    def __init__(self, folder: str, supervisor: int, command: "Command") -> None:
        self.folder = folder
        self.supervisor = supervisor
        self.command = command
        self.secret = os.urandom(32)
        self.free = threading.Semaphore(MOST_CONNECTIONS)

    def main(self) -> None:
        machine.set_name(b"tow-relay")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        listener = socket.socket()
        listener.bind(("", 0))
        listener.listen(MOST_CONNECTIONS)
        about = {
            "host": socket.gethostname(),
            "port": listener.getsockname()[1],
            "secret": self.secret.hex(),
        }
        record.write_whole(self.folder + FILE, json.dumps(about).encode("ascii"))
        while self.is_needed():
            ready, _, _ = select.select([listener], [], [], LOOK_S)
            if ready and self.free.acquire(False):
                connection, _ = listener.accept()
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def is_needed(self) -> bool:
        return os.getppid() == self.supervisor or process_tree.lives(*self.command)

    def serve(self, connection: "socket.socket") -> None:
        try:
            inner = self.let_in(connection)
            if inner is not None:
                back = threading.Thread(target=copy, args=(inner, connection), daemon=True)
                back.start()
                copy(connection, inner)
                back.join()
                inner.close()
        except OSError:
            pass
        finally:
            connection.close()
            self.free.release()

    def let_in(self, connection: "socket.socket") -> "socket.socket | None":
        """The connection to the port that was asked for; None for who does not know the secret."""
        connection.settimeout(HANDSHAKE_S)
        challenge = os.urandom(CHALLENGE)
        connection.sendall(challenge)
        answer = read_exactly(connection, PORT.size + hashlib.sha256().digest_size)
        port = PORT.unpack_from(answer)[0]
        if not hmac.compare_digest(answer, answer_to(challenge, self.secret, port)):
            return None
        try:
            inner = socket.create_connection(("127.0.0.1", port), HANDSHAKE_S)
        except OSError:
            connection.sendall(NO)
            return None
        connection.sendall(YES)
        for each in (connection, inner):
            each.settimeout(None)
        return inner


def read_exactly(connection: "socket.socket", size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise OSError("closed too early")
        data += piece
    return data


def copy(source: "socket.socket", target: "socket.socket") -> None:
    """Everything that comes, then its end; a side that is gone ends both."""
    try:
        while True:
            data = source.recv(PIECE)
            if not data:
                break
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


# Where the queue is reached


class Door:
    """The handshake, seen from the one who wants in."""

    def __init__(self, folder: str, port: int) -> None:
        # Listing first: a network file system may remember for long what was not there.
        if FILE[1:] not in os.listdir(folder):
            record.write_whole(folder + WANTED, b"")
            raise Refusal("opening", "the way to its node is being opened: try again in a moment")
        try:
            with open(folder + FILE, "rb") as file:
                about = json.loads(file.read().decode("ascii"))
            found = socket.getaddrinfo(about["host"], about["port"], socket.AF_INET)
            self.address = found[0][4][:2]
            self.secret = bytes.fromhex(about["secret"])
        except (OSError, ValueError, KeyError) as problem:
            raise Refusal("refused", "its node cannot be reached: %s" % problem)
        self.port = port
        self.heard = b""

    def hear(self, sock: "socket.socket") -> "bool | None":
        """Go on; True once we are in, False when we are turned away, None while it takes."""
        challenged = len(self.heard) >= CHALLENGE
        data = sock.recv(1 if challenged else CHALLENGE - len(self.heard))
        if not data:
            return False
        if challenged:
            return data == YES
        self.heard += data
        if len(self.heard) == CHALLENGE:
            sock.send(answer_to(self.heard, self.secret, self.port))
        return None
