"""How long is waited for what. Pure: chance is an argument."""

from msgspec import Struct


class Times(Struct, frozen=True):
    """All that is waited for, in seconds."""

    #: A queue is asked so soon after something changed, ...
    soon_s: float = 1.5
    #: ... but never more often than this, ...
    often_s: float = 5.0
    #: ... and so seldom while nothing happens: less than twice a minute.
    seldom_s: float = 32.0
    #: So seldom at the most while it gives no answer.
    longest_s: float = 300.0
    #: A submission whose connection broke may be at it for so long.
    settling_s: float = 5.0
    #: A shared file system may show what a node wrote only after a while.
    settle_s: float = 20.0
    #: A job that the queue does not know any more may still be told of by its files so much later.
    forgotten_s: float = 60.0
    #: The controller remembers ended jobs for some minutes. One that it knew so recently and now
    #: does not even know as ended was never written down there: it was killed at the wrong moment.
    remembered_s: float = 180.0
    #: What a list says may be older than what the files told meanwhile.
    race_s: float = 5.0
    #: A controller that was killed is not itself for so long, and cancels what nobody cancelled.
    restarted_s: float = 600.0
    #: Places in the queue change; they are asked for at most so often.
    places_s: float = 60.0
    #: Accounts that do not answer, or have not heard of an end, get so long.
    accounts_s: float = 600.0
    #: Lines that do not fill an allocation wait so long for others that could share it.
    gather_s: float = 1.5
    #: Several processes may take so long to stop by themselves.
    patience_s: float = 30.0

    def backoff_s(self, tries: int, chance: float) -> float:
        """How long to wait before an attempt is offered again that was not taken so often.

        `chance`, from 0 to 1, keeps many users apart.
        """
        return min(self.soon_s * 2.0**tries, self.longest_s) * (0.8 + 0.4 * chance)
