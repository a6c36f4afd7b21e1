"""A machine reached by the user's own OpenSSH.

Everything in `~/.ssh/config` holds: names, users, keys, ProxyJump, certificates, an open
ControlMaster. Host keys are checked as the user's ssh does it. One connection per machine: the
agent's channel carries everything, so MaxSessions 1 is enough.

Where a person must act (password, second factor, a host key nobody has confirmed yet), `login()` is
run once on the terminal; it leaves a master connection behind which the Engine then uses.
"""

import hashlib
import os
import shlex
from collections.abc import Callable
from typing import NamedTuple

from towline.errors import (
    HostError,
    LoginRefused,
    NoNetwork,
    Refused,
    UnknownHostKey,
    Unreachable,
    Unusable,
    WrongHostKey,
)
from towline.hosts.ciphers import faster_ciphers
from towline.model.names import shown_cluster

#: Finds a python3 and hands over. It passes through the login shell (sh, bash, csh, fish alike),
#: so it contains no single quote, newline, `!` or backslash.
#: `-I`: a json.py in the home folder over there is not ours to import.
_FIND_PYTHON = (
    "for p in python3 /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3; do "
    'if command -v "$p" >/dev/null 2>&1; then exec "$p" -I -c "$@"; fi; done; '
    'if command -v python >/dev/null 2>&1; then exec python -c "$@"; fi; '
    "echo TOWLINE1 no-python; exit 3"
)

_PERSON_MUST_ACT = "run `tow login {name}` on a terminal"


class SshHost:
    """`destination` is what ssh is given (a name of ~/.ssh/config, or user@host)."""

    def __init__(
        self,
        name: str,
        destination: str,
        port: int | None,
        control_folder: str,
        key: str | None = None,
    ) -> None:
        self.name = name
        self.destination = destination
        self.port = port
        self.place = place_of(destination, port)
        #: The file of the one key to log in with; None: those that ssh finds itself.
        self.key = key
        # A short hash, so that the path fits a socket whatever the machine is called.
        digest = hashlib.sha256(f"{destination}:{port}".encode()).hexdigest()[:12]
        #: Where `login()` leaves its master connection.
        self.control_path = os.path.join(control_folder, digest)
        #: Which encryption to ask for; empty: as ssh would choose.
        self._ciphers: list[str] = []

    async def prepare(self) -> None:
        self._ciphers = await faster_ciphers(self.question())

    def channel(self, boot: str, *arguments: str) -> list[str]:
        remote = shlex.join(["sh", "-c", _FIND_PYTHON, "sh", boot, *arguments])
        options = ["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"]
        if self._ciphers:
            options += ["-o", f"Ciphers={','.join(self._ciphers)}"]
        return self._ssh(*options, *self._shared(), "--", self.destination, remote)

    def login(self) -> list[str] | None:
        master = ["-o", "ControlMaster=yes", "-o", f"ControlPath={self.control_path}"]
        return self._ssh(*master, "-o", "ControlPersist=yes", "-f", "-N", "--", self.destination)

    def question(self) -> list[str]:
        """The argv that prints where ssh would go, for `real_target`; it does not go there."""
        return self._ssh("-G", "--", self.destination)

    def _shared(self) -> list[str]:
        """Use a master that `login()` left behind, or the user's own; never become one."""
        options = ["-o", "ControlMaster=no"]
        if os.path.exists(self.control_path):
            options += ["-o", f"ControlPath={self.control_path}"]
        return options

    def _ssh(self, *rest: str) -> list[str]:
        argv = ["ssh"]
        if config := os.environ.get("TOWLINE_SSH_CONFIG"):
            argv += ["-F", config]
        if self.port is not None:
            argv += ["-p", str(self.port)]
        if self.key is not None:
            # ssh replaces %-words in the names of key files.
            path = os.path.expanduser(self.key).replace("%", "%%")
            argv += ["-i", path, "-o", "IdentitiesOnly=yes"]
        # Keys stay on this machine; a dead connection is noticed within a minute at the latest.
        argv += ["-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "ServerAliveInterval=15"]
        return [*argv, *rest]

    def failure(self, returncode: int | None, stderr: str) -> HostError:
        way = Way(self.destination, self.port, self.key)
        return explain_failure(shown_cluster(self.name), way, returncode, stderr)


def place_of(destination: str, port: int | None) -> str:
    return destination if port is None else f"{destination}:{port}"


def real_target(answer: str) -> tuple[str, ...]:
    """User, address and port, from what `ssh -G` printed: two names of one machine agree in it."""
    told = dict(line.partition(" ")[::2] for line in answer.splitlines())
    return tuple(told.get(word, "") for word in ("user", "hostname", "port"))


class Way(NamedTuple):
    """How a machine is reached, in commands that a person can type."""

    destination: str
    port: int | None = None
    key: str | None = None

    def typed(self, program: str) -> str:
        """`ssh -p 2222 -i KEY worker@host`; the same for ssh-copy-id."""
        port = [] if self.port is None else ["-p", str(self.port)]
        key = [] if self.key is None else ["-i", self.key]
        # A `~` must not be quoted: the shell replaces it.
        return " ".join([program, *port, *map(_quoted, key), shlex.quote(self.destination)])

    def known_as(self) -> str:
        """Its name in ~/.ssh/known_hosts."""
        host = self.destination.rpartition("@")[2]
        return shlex.quote(host if self.port in (None, 22) else f"[{host}]:{self.port}")


def _quoted(word: str) -> str:
    return f"~/{shlex.quote(word[2:])}" if word.startswith("~/") else shlex.quote(word)


def _changed_key(name: str, way: Way, last: str) -> HostError:
    return WrongHostKey(
        f"{name}: its host key has changed since you last connected",
        hint="if the machine was reinstalled, remove the old key with "
        f"`ssh-keygen -R {way.known_as()}`; "
        "if not, someone may be listening: ask its admin",
    )


def _unknown_key(name: str, way: Way, last: str) -> HostError:
    return UnknownHostKey(
        f"{name}: its host key is not known yet",
        hint=f"{_PERSON_MUST_ACT.format(name=name)} and confirm the key",
    )


def _denied(name: str, way: Way, last: str) -> HostError:
    methods = last.partition("(")[2].rstrip(").") or "unknown"
    return LoginRefused(
        f"{name}: login refused (it accepts: {methods})",
        hint=f"{_PERSON_MUST_ACT.format(name=name)}; "
        f"or install your key with `{way.typed('ssh-copy-id')}`",
    )


def _no_such_name(name: str, way: Way, last: str) -> HostError:
    return NoNetwork(
        f"{name}: there is no host of that name ({way.destination})",
        hint="check the spelling, ~/.ssh/config, and whether you are on the right network or VPN",
    )


def _no_answer(name: str, way: Way, last: str) -> HostError:
    return Unreachable(
        f"{name}: does not answer ({_tail(last)})",
        hint=f"is it switched on and reachable? try: {way.typed('ssh')} true",
    )


def _no_network(name: str, way: Way, last: str) -> HostError:
    return NoNetwork(
        f"{name}: cannot be reached from here ({_tail(last)})",
        hint="is this machine on the right network or VPN?",
    )


#: What a damaged agent ends with, once it was removed.
SENT_AGAIN = 75

#: What OpenSSH prints -> what it means. First match wins.
_SIGNS: tuple[tuple[str, Callable[[str, Way, str], HostError]], ...] = (
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", _changed_key),
    ("Host key verification failed", _unknown_key),
    ("Permission denied", _denied),
    ("Too many authentication failures", _denied),
    ("Could not resolve hostname", _no_such_name),
    ("Connection refused", _no_answer),
    ("Connection timed out", _no_answer),
    ("No route to host", _no_answer),
    ("Network is unreachable", _no_network),
    ("Connection closed", _no_answer),
    ("Connection reset", _no_answer),
    ("timed out", _no_answer),
)


def explain_failure(name: str, way: Way, returncode: int | None, stderr: str) -> HostError:
    """Turn what OpenSSH printed into an error a person can act on; the raw text is kept."""
    lines = stderr.strip().splitlines()
    for sign, explain in _SIGNS:
        matching = [line for line in lines if sign in line]
        if matching:
            return explain(name, way, matching[-1])
    if returncode == 3:
        return no_python(name)
    last = lines[-1] if lines else f"ssh ended with code {returncode} and said nothing"
    if returncode == SENT_AGAIN:
        return sent_again(name, last)
    return Unreachable(
        f"{name}: the connection failed: {last}", hint=f"try: {way.typed('ssh')} true"
    )


def sent_again(name: str, last: str) -> HostError:
    """Files of the agent were removed or damaged over there; the next call mends that."""
    return Unreachable(
        f"{name}: {last.removeprefix('towline: ')}", hint="it is called again by itself"
    )


def no_python(name: str) -> HostError:
    return Unusable(
        f"{name}: no python3 found there",
        hint="install any python3 from 3.6 on (no packages needed), or put it on the PATH of "
        "non-interactive logins",
    )


def needs_person(error: HostError | None) -> bool:
    """True where a login on a terminal can mend it."""
    return isinstance(error, Refused) and error.login_mends


def _tail(line: str) -> str:
    """`ssh: connect to host x port 22: Connection refused` -> `connection refused`."""
    return line.rpartition(": ")[2].strip().rstrip(".").lower() or line
