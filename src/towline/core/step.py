"""What one turn of the loop decided."""

from msgspec import Struct, field

from towline.model.events import Order
from towline.model.job import Attempt, Job


class Step(Struct):
    """What one turn of the loop decided."""

    changed: dict[int, Job] = field(default_factory=dict)
    #: Those of them that were submitted in this very step.
    fresh: set[int] = field(default_factory=set)
    #: (job, its state, sentence) for the history that `tow show` prints.
    told: list[tuple[int, str, str]] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    #: Attempts that will be followed by another.
    past: list[tuple[int, Attempt]] = field(default_factory=list)
    #: What could not be handled, and why.
    failures: list[tuple[str, Exception]] = field(default_factory=list)
    #: When to ask again though nothing happens before.
    wake_at: float | None = None
    #: All that jobs printed that ended in this step, where it came with their ending.
    said: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)

    def tell(self, job: Job, text: str) -> None:
        self.told.append((job.id, job.state.value, text))

    def remark(self, job: Job, text: str) -> None:
        """A word that is not about the job, though it came of it."""
        self.told.append((job.id, "remark", text))

    def take_back_fresh(self) -> None:
        """As if nothing had been submitted in it."""
        for job_id in self.fresh:
            self.changed.pop(job_id, None)
        self.orders = [order for order in self.orders if order.job.id not in self.fresh]
        self.told = [one for one in self.told if one[0] not in self.fresh]
        self.fresh.clear()
