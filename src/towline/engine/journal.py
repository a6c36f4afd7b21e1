"""Who wants to know what happens: subscribers of the journal.

Everything that waits for news sits on this: followers of jobs and batches, services, programs that
read `/v1/events`. Events are told once they are on disk. A subscriber who is too slow to take them
is not waited for: its queue is emptied, `gap` is set, and it reads the journal from where it was.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

from towline.model.batch import BatchKey
from towline.model.journal import JournalEvent
from towline.store.journal import JournalRows

#: So many events wait for a subscriber before it has to read them from the journal.
MOST_WAITING = 1000

#: A job's number, a batch's key, or None for everything.
Topic = int | BatchKey | None


class Subscription:
    """News about one topic, from the moment on that it was made. Use it in a `with`."""

    def __init__(self, journal: "Journal", topic: Topic) -> None:
        self.topic = topic
        #: True when events were dropped that nobody took.
        self.gap = False
        self._journal = journal
        self._events: deque[JournalEvent] = deque()
        self._news = asyncio.Event()

    def __enter__(self) -> "Subscription":
        self._journal.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.remove(self)

    def publish(self, event: JournalEvent) -> None:
        if len(self._events) >= MOST_WAITING:
            self._events.clear()
            self.gap = True
        self._events.append(event)
        self._news.set()

    async def wait(self) -> None:
        """Until something has happened that was not taken yet."""
        await self._news.wait()

    def take(self) -> list[JournalEvent]:
        """What has happened since the last time; with a `gap`, only the end of that."""
        taken = list(self._events)
        self._events.clear()
        self._news.clear()
        return taken


class Journal:
    """Tells each subscriber of what is written down."""

    def __init__(self, rows: JournalRows) -> None:
        self.rows = rows
        self._subscriptions: dict[Topic, set[Subscription]] = {}

    def subscribe(self, job: int = 0, batch: BatchKey | None = None) -> Subscription:
        """To what happens to a job, to a batch and its jobs, or to everything."""
        return Subscription(self, job or batch or None)

    @property
    def is_watched(self) -> bool:
        """True while somebody waits for news of a job."""
        return any(isinstance(topic, int) for topic in self._subscriptions)

    def publish(self) -> None:
        """Tell what was written down since the last time."""
        for event in self.rows.take_committed():
            for topic in (event.job, (event.owner, event.batch), None):
                for subscription in self._subscriptions.get(topic, ()):
                    subscription.publish(event)

    def wake(self, topics: Iterable[Topic]) -> None:
        """Let subscribers look again, though the journal has nothing new."""
        for topic in topics:
            for subscription in self._subscriptions.get(topic, ()):
                subscription._news.set()

    def add(self, subscription: Subscription) -> None:
        self._subscriptions.setdefault(subscription.topic, set()).add(subscription)

    def remove(self, subscription: Subscription) -> None:
        subscribers = self._subscriptions[subscription.topic]
        subscribers.discard(subscription)
        if not subscribers:
            del self._subscriptions[subscription.topic]
