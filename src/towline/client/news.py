"""Whether anything happened in an Engine, for whoever shows it and would else ask over and over."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from towline.client.events import events, seq_now
from towline.errors import TowlineError

if TYPE_CHECKING:
    from towline.client.session import Session

#: What no event tells, such as a place in another's queue, is asked for so often.
REFRESH_S = 15.0


class News:
    """Listens to the journal from now on."""

    def __init__(self, session: Session) -> None:
        self._happened = threading.Event()
        self._over = False
        self._asked_at = -REFRESH_S
        since = seq_now(session)
        threading.Thread(target=self._listen, args=(session, since), daemon=True).start()

    def _listen(self, session: Session, since: int) -> None:
        try:
            for _ in events(session, since=since):
                self._happened.set()
        except TowlineError:
            # Whoever asks the Engine itself hears what is wrong with it.
            self._over = True

    def any(self) -> bool:
        """Whether it is time to ask: something happened since the last time, or that is long ago.

        The first time it always is.
        """
        due = time.monotonic() - self._asked_at >= REFRESH_S
        if not (due or self._over or self._happened.is_set()):
            return False
        self._happened.clear()
        self._asked_at = time.monotonic()
        return True
