"""Members of a team at work, in a process of their own: each submits, looks at the status again and
again, and follows what its jobs print.

Started by team_server.py, which writes what they need to stdin; prints how long each status took.
"""

import json
import random
import sys
import threading
import time
from typing import Any

from towline.client.job import Job
from towline.client.remote import RemoteSession

#: How often somebody looks at the status, in seconds; and lines that each job prints.
LOOK_S = 5.0
LINES = 5
SCRIPT = 'for n in 1 2 3 4 5; do echo "$0 $n"; sleep 4; done'


class Member(threading.Thread):
    """Somebody with a token, for so many seconds."""

    def __init__(self, name: str, session: RemoteSession, seconds: float) -> None:
        super().__init__(name=name, daemon=True)
        self.session = session
        self.until = time.monotonic() + seconds
        self.statuses: list[float] = []
        self.jobs = 0
        self.error = ""

    def run(self) -> None:
        try:
            looking = threading.Thread(target=self.look, daemon=True)
            looking.start()
            # Nobody says when: they do not all begin in the same second.
            time.sleep(random.Random(self.name).uniform(0, 2 * LOOK_S))
            while time.monotonic() < self.until:
                self.submit_and_follow()
            looking.join()
        except Exception as error:
            self.error = f"{self.name}: {error!r}"

    def look(self) -> None:
        chance = random.Random(self.name)
        try:
            while time.monotonic() < self.until:
                time.sleep(chance.uniform(0, 2 * LOOK_S))
                began = time.perf_counter()
                status = self.session.call("GET", "/v1/team/status")
                self.statuses.append(time.perf_counter() - began)
                if not {"running", "waiting", "done"} <= status.keys():
                    raise RuntimeError("that is no status")
        except Exception as error:
            self.error = f"{self.name}: {error!r}"

    def submit_and_follow(self) -> None:
        mark = f"{self.name}-{self.jobs}"
        ask = {"argv": ["sh", "-c", SCRIPT, mark], "cwd": "/", "results": False}
        job = Job(self.session, self.session.submit_ask(ask, mark))
        printed = "".join(piece.text for piece in job.follow("out"))
        wanted = "".join(f"{mark} {number}\n" for number in range(1, LINES + 1))
        if printed != wanted:
            raise RuntimeError(f"job {job.id} printed {printed!r}")
        self.jobs += 1


def main(told: dict[str, Any]) -> dict[str, Any]:
    members = [
        Member(name, RemoteSession(told["url"], told["certificate"], token), told["seconds"])
        for name, token in told["members"].items()
    ]
    for member in members:
        member.start()
    for member in members:
        member.join()
    return {
        "statuses": [took for member in members for took in member.statuses],
        "jobs": sum(member.jobs for member in members),
        "errors": [member.error for member in members if member.error],
    }


if __name__ == "__main__":
    json.dump(main(json.load(sys.stdin)), sys.stdout)
