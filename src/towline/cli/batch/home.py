"""What the jobs of a batch made on a team's server, taken home."""

from __future__ import annotations

from towline.cli.terminal import tell
from towline.cli.terminal.wording import FINAL, count
from towline.client.batches import ask_of_batch, jobs_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from towline.client.session import Session


def take_batch_home(session: Session, name: str) -> bool:
    """Put what its ended jobs made into their folder; False: one's own Engine does so itself."""
    if not session.takes_home:
        return False
    # All of it is on the server then.
    ask_of_batch(session, name, "results")
    ended = [job for job in jobs_of(session, name)["jobs"] if job["state"] in FINAL]
    taken = [session.take_home(job["id"], job) for job in ended]
    came = sum(bool(one and one["files"]) for one in taken)
    if came:
        tell(f"results of {count(came, 'job')} came home")
    return True
