"""Every error Towline raises on purpose.

TowlineError
├── UsageError            the user asked for something that cannot be; exit code 2
│   ├── RequestError      a request that does not parse, with the place and what was expected
│   ├── ConfigError       a configuration file that is wrong, with file and key
│   ├── NotTrusted        a project's file that decides what runs where, and nobody trusted it yet
│   ├── CannotPlace       results that cannot be put into the folder that they belong to
│   ├── EnvironmentWanted a job on this machine, whose submitter's environment was not sent along
│   └── Impossible        a request that no machine of the cluster can ever satisfy
├── Forbidden             whoever asks may not do that
├── SignInWanted          a team's server was not told who asks, or not by a token that holds
│   └── WrongPassword     no such account, or another password
├── TooMany               tried too often of late
├── TooLarge              more was sent than is taken at once
├── Exists                that name is taken
├── NoRoom                a team's server has no room for what was sent
│   └── OverQuota         its owner may not have so much there
├── NotFound              no such job, cluster, machine or file; exit code 2
├── HostError             a machine could not be reached or used
│   ├── Unreachable       no answer (network, name, port); worth trying again
│   │   └── NoNetwork     it was not even asked: this side has no network, or no names
│   ├── Refused           it answered and said no (key, password, host key); a person must act
│   ├── LoginWanted       the same, with the command by which that person logs in
│   └── Unusable          logged in, but no python3, no disk space, a wrong clock
├── AgentError            the agent over there refused one operation
│   └── Nonsense          it said something that no agent says
├── JobFailed             a job that a program waited for did not end well
└── EngineError           the Engine itself cannot go on (store too new, socket taken)
    ├── Damaged           what it remembers of one job or batch cannot be read
    └── CannotWrite       its store cannot be written now: no room, locked, read-only

`text` says what was wrong and where, `hint` what to do next. Both are for people.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class TowlineError(Exception):
    """Base of them all."""

    #: Machine-readable name, part of the API.
    code = "error"
    #: What `tow` exits with.
    exit_code = 1
    #: HTTP status of the API.
    status = 500
    #: True when the same call may succeed later without anyone doing anything.
    transient = False

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.text}\n  {self.hint}" if self.hint else self.text

    def facts(self) -> dict[str, object]:
        """What a program needs to know to act on it; part of the API."""
        return {}


class UsageError(TowlineError):
    code = "usage"
    exit_code = 2
    status = 400


class RequestError(UsageError):
    """A request that does not parse; `text` carries the line with a caret below the place."""

    code = "request"


class ConfigError(UsageError):
    code = "config"


class NotTrusted(UsageError):
    code = "not_trusted"

    def __init__(self, file: str, digest: str, settings: dict[str, object]) -> None:
        super().__init__(
            f"{file} wants to decide what runs where, and you have not trusted it",
            "look at it, then type: tow trust",
        )
        self.file = file
        self.digest = digest
        self.settings = settings

    def facts(self) -> dict[str, object]:
        return {"trust": {"file": self.file, "digest": self.digest, "settings": self.settings}}


class Impossible(UsageError):
    """What can never run; `said` are the words of the queue that would refuse it."""

    code = "impossible"

    def __init__(self, text: str, hint: str = "", said: str = "") -> None:
        super().__init__(text, hint)
        self.said = said

    def facts(self) -> dict[str, object]:
        return {"said": self.said} if self.said else {}


class CannotPlace(UsageError):
    def __init__(self, text: str, hint: str = "", transient: bool = False) -> None:
        super().__init__(text, hint)
        self.transient = transient


class EnvironmentWanted(UsageError):
    code = "environment_wanted"
    status = 409


class Forbidden(TowlineError):
    code = "forbidden"
    status = 403


class SignInWanted(TowlineError):
    code = "sign_in"
    status = 401


class WrongPassword(SignInWanted):
    code = "wrong_password"


class TooMany(TowlineError):
    code = "too_many"
    status = 429
    transient = True

    def __init__(self, text: str, wait_s: float = 1.0) -> None:
        super().__init__(text, f"try again in {wait_s:.0f} s")
        self.wait_s = wait_s


class TooLarge(UsageError):
    code = "too_large"
    status = 413


class Exists(UsageError):
    code = "exists"
    status = 409


class NoRoom(TowlineError):
    code = "no_room"
    status = 507


class OverQuota(NoRoom):
    code = "quota"


class NotFound(TowlineError):
    code = "not_found"
    exit_code = 2
    status = 404


class HostError(TowlineError):
    code = "host"
    status = 502


class Unreachable(HostError):
    code = "unreachable"
    transient = True


class NoNetwork(Unreachable):
    """This side could not even ask, so nothing is said about the machine."""


class Refused(HostError):
    code = "refused"
    #: Whether a person who logs in on a terminal can mend it.
    login_mends = False


class LoginRefused(Refused):
    login_mends = True


class WrongHostKey(Refused):
    """Its key is another than the one that was confirmed."""


class UnknownHostKey(WrongHostKey):
    """Nobody has confirmed its key yet."""

    login_mends = True


class LoginWanted(HostError):
    """`error` goes away when a person logs in; `login` says how."""

    def __init__(self, error: HostError, login: "Mapping[str, object]") -> None:
        super().__init__(error.text, error.hint)
        self.code, self.exit_code, self.status = error.code, error.exit_code, error.status
        self.login = login

    def facts(self) -> dict[str, object]:
        return {"login": self.login}


class Unusable(HostError):
    code = "unusable"


class AgentError(TowlineError):
    code = "agent"
    status = 502


class Nonsense(AgentError):
    code = "nonsense"


class JobFailed(TowlineError):
    """A job that was waited for failed, was stopped or was lost; `outcome` says how it ended."""

    code = "job_failed"

    def __init__(self, text: str, hint: str = "", outcome: object = None) -> None:
        super().__init__(text, hint)
        self.outcome = outcome


class EngineError(TowlineError):
    code = "engine"


class Damaged(EngineError):
    code = "damaged"
    status = 410


class CannotWrite(EngineError):
    code = "store"
    status = 503
    transient = True
