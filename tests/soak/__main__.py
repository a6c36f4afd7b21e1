"""Run jobs and kill what runs them, for a time or a number of kills; exit code 1 when it shows."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from e2e.jobs import configure
from soak.evidence import evidence
from soak.verdict import Verdict, judge
from soak.victims import Killer
from soak.work import RAN_THERE, Work, endless_work
from testbed.hosts import Hosts
from testbed.leftovers import stop_all
from testbed.tow import Tow
from testbed.waiting import wait_until
from towline.client.session import ApiError, Session
from towline.errors import EngineError

LAB = ("h1", "h2", "h3")
#: So many jobs are under way at a time.
UNDER_WAY = 24
#: One of so many is a `tow run` that is followed to its end.
FOLLOWED = 12
LONGEST_QUIET_S = 0.8
TOLD_EVERY_S = 15.0
DAY_MIN = 24 * 60.0


class Soak:
    """One Engine after the other, three hosts, and jobs without end."""

    def __init__(self, hosts: Hosts, home: Path, folder: Path, seed: int) -> None:
        self.hosts = hosts
        self.folder = folder
        self.tow = Tow(home, hosts.ssh_config, folder)
        self.ran_here = home / "ran.txt"
        self._work = endless_work(Random(seed), self.ran_here)
        self._turn = threading.Lock()
        self.killer = Killer(home, hosts, LAB, Random(seed + 1))
        self.pause = Random(seed + 2)
        self.asked: dict[int, Work] = {}
        self.wrong: list[str] = []
        #: Submissions that were refused, and questions that no Engine lived to answer.
        self.refused = self.cut = 0
        self.over = threading.Event()
        configure(self.tow, *LAB)

    def run(self, until: float, kills: int) -> Verdict:
        """Submit and kill until the time is over or enough was killed; then look at everything."""
        session = Session()
        self._submit_and_kill(until, kills)
        views = wait_until(
            lambda: self._all_home(session), 300, lambda: self._under_way(session), every=0.5
        )
        ran = [line for lines in self._lines() for line in lines]
        found = judge(self.asked, views, ran, self.folder, self.killer, session)
        return found._replace(wrong=self.wrong + found.wrong)

    def _submit_and_kill(self, until: float, kills: int) -> None:
        with ThreadPoolExecutor(UNDER_WAY) as pool:
            submitting = [pool.submit(self._submit_on) for _ in range(UNDER_WAY)]
            try:
                self._kill_until(until, kills, submitting)
            finally:
                self.over.set()
        for future in submitting:
            future.result()

    def _kill_until(self, until: float, kills: int, submitting: "list[Future[None]]") -> None:
        told = time.monotonic()
        while time.monotonic() < until and self.killer.kills.total() < kills:
            time.sleep(self.pause.uniform(0, LONGEST_QUIET_S))
            self.killer.kill_one()
            for future in submitting:
                if future.done():
                    future.result()
            if time.monotonic() - told > TOLD_EVERY_S:
                told = time.monotonic()
                print(f"  {len(self.asked):5} jobs, {_in_words(self.killer)}", flush=True)

    def _submit_on(self) -> None:
        """One job after the other, each followed to its end, by `tow run` or by asking."""
        session = Session()
        while not self.over.is_set():
            with self._turn:
                work = next(self._work)
            if int(work.name.removeprefix("soak")) % FOLLOWED == 0:
                self._follow(work)
            else:
                job = self._accepted(session, work)
                wait_until(lambda job=job: self._ended(session, job), timeout=300, every=0.3)

    def _accepted(self, session: Session, work: Work) -> int:
        """Ask until it is accepted: a machine that was just killed may be told as such."""
        key = uuid.uuid4().hex
        while True:
            try:
                job: int = session.submit_ask(work.ask(self.folder), key)["id"]
            except (ApiError, EngineError):
                self.refused += 1
            else:
                self.asked[job] = work
                return job

    def _follow(self, work: Work) -> None:
        """What the terminal shows is what the command printed, whatever was killed meanwhile."""
        words = ("-c", work.cluster, "-t", work.name, "--", *work.argv)
        done = self.tow("run", *words, timeout=300)
        # Where Engines are killed as fast as a busy machine starts them, that is said.
        given_up = "jobs go on" in done.stderr
        named = [job["id"] for job in self._jobs(Session()) if job["title"] == work.name]
        if not named and done.returncode and done.stderr:
            # It said that it was not accepted; if it runs all the same, that shows in the end.
            self.refused += 1
            print(f"  {work.name} was refused: {done.stderr!r}", flush=True)
            return
        (job,) = named
        self.asked[job] = work
        shown = (done.returncode, done.stdout, done.stderr.count(work.err))
        if shown != (work.code, work.out, 1) and not given_up and "lost" not in done.stderr:
            self.wrong.append(f"job {job}: `tow run` showed {done.returncode}, {done.stderr!r}")

    def _ended(self, session: Session, job: int) -> bool:
        return self.over.is_set() or bool(self._answer(session, f"/v1/jobs/{job}")["ended"])

    def _answer(self, session: Session, target: str) -> Any:
        """Asked for until an Engine lives long enough to give it."""
        while True:
            try:
                return session.call("GET", target)
            except EngineError:
                self.cut += 1

    def _all_home(self, session: Session) -> list[dict[str, Any]]:
        """All jobs, once each has ended and what it made is home."""
        return [] if self._under_way(session) else self._jobs(session)

    def _under_way(self, session: Session) -> list[dict[str, Any]]:
        return [
            job
            for job in self._jobs(session)
            if not job["ended"] or job["home"]["kind"] == "pending"
        ]

    def _jobs(self, session: Session) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = self._answer(session, "/v1/jobs?all=1")["jobs"]
        return jobs

    def _lines(self) -> list[list[str]]:
        files = [self.hosts.root(name) / RAN_THERE.lstrip("/") for name in LAB]
        return [file.read_text().split() for file in (self.ran_here, *files) if file.exists()]


def _in_words(killer: Killer) -> str:
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(killer.kills.items()))
    return f"{killer.kills.total()} kills ({kinds})"


def summed_up(found: Verdict) -> int:
    """Tell what was found; the exit code that goes with it."""
    for line in found.wrong:
        print(f"  WRONG: {line}")
    print(f"  {found.lost} jobs lost, their supervisor and their agent both being killed")
    print(f"soak: {found.jobs - len(found.wrong)} passed, {len(found.wrong)} failed")
    return 1 if found.wrong or not found.jobs else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, help="end after so long; without --kills, 10")
    parser.add_argument("--kills", type=int, help="end after so many kills")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", action="store_true", help="leave the files of a failed run")
    args = parser.parse_args()
    # Whoever ends it early ends the hosts and the jobs with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("soak: ended early"))
    kills = args.kills or sys.maxsize
    minutes = args.minutes or (DAY_MIN if args.kills else 10.0)
    wanted = f"{args.kills} kills" if args.kills else f"{minutes:g} minutes"
    print(f"soak: {wanted}, seed {args.seed}", flush=True)
    home = Path(tempfile.mkdtemp(prefix="tow-soak-", dir="/tmp"))
    folder = home / "project"
    folder.mkdir()
    found = None
    try:
        with Hosts(count=len(LAB), inner=False) as hosts:
            # Only now: what belongs to this home is ended with it, and the hosts do not.
            os.environ |= {
                "TOWLINE_HOME": str(home),
                "TOWLINE_SSH_CONFIG": str(hosts.ssh_config),
            }
            soak = Soak(hosts, home, folder, args.seed)
            try:
                found = soak.run(time.monotonic() + 60 * minutes, kills)
                # While the hosts are there.
                known = evidence(found.wrong, home, map(hosts.root, LAB), soak.killer.about)
            finally:
                stop_all(home)
                soak.tow.close()
    finally:
        if not args.keep or (found is not None and not found.wrong):
            shutil.rmtree(home)
    for line in known:
        print(f"    {line}")
    again = f"{soak.refused} submissions and {soak.cut} questions made again"
    print(f"  {_in_words(soak.killer)}; {again}")
    return summed_up(found)


if __name__ == "__main__":
    sys.exit(main())
