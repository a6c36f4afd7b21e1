"""What jobs wrote outside of their folders is collected, whoever was killed over it.

A supervisor does so when its job has ended. Where it was killed, one of ours does: as soon as we
settle how the job ended, or when somebody asks for what it made.
"""

from ..content import outside
from ..home import checked_key
from ..records.status import is_elsewhere

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..commands.login import LoginShell
    from ..home import Home
    from ..loop import Loop
    from ..typed import Message
    from .supervisors import Supervisors

AGAIN_S = 0.5
#: A runner on a node that has not shown for so long that it collects was killed.
QUIET_S = 30.0


class Collecting:
    def __init__(
        self, loop: "Loop", home: "Home", supervisors: "Supervisors", login: "LoginShell"
    ) -> None:
        self.loop = loop
        self.home = home
        self.supervisors = supervisors
        self.login = login

    def collect(self, request: "Message", _blob: bytes) -> "Message":
        """Whether all is collected of a job that has ended, and what could not be."""
        key = checked_key(request.get("key"))
        folder = self.home.record(key)
        state = outside.read_state(folder)
        if state.get("done") is not False:
            return {
                "done": True,
                "left_out": state.get("left_out") or [],
                "count": state.get("count") or 0,
            }
        if not outside.is_taken(folder) and not self.may_be_taken(folder):
            self.begin(key)
        return {"done": False}

    def may_be_taken(self, folder: str) -> bool:
        """On another machine, where no lock may tell of it."""
        return is_elsewhere(folder) and outside.quiet_s(folder) < QUIET_S

    def see_to(self, key: str) -> None:
        """Of a job that ended without its supervisor."""
        folder = self.home.record(key)
        if outside.is_pending(folder) and not outside.is_taken(folder) and not self.begin(key):
            self.loop.later(AGAIN_S, lambda: self.see_to(key))

    def begin(self, key: str) -> bool:
        """Have a supervisor do it; False where none can be had just now."""
        if self.login.is_pending:
            return False  # it would run its next job with the environment that we have now
        try:
            worker = self.supervisors.take()
        except OSError:  # too many processes just now
            return False
        if worker is not None:
            self.supervisors.say(worker, {"collect": key})
        return worker is not None
