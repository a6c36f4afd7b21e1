"""A team's server on this machine, with its nodes and its clients: 200 members at work, `pit
status` with 10,000 queued jobs, and a first job behind 5,000 of somebody else."""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lab import ROOT
from rested_disk import folder, rested_disk
from verdict import Verdict

from testbed.hosts import Hosts
from testbed.pit import Pit
from testbed.team import PASSWORD, TeamServer
from testbed.waiting import wait_until
from towline.client.remote import RemoteSession

PROCESSES, SECONDS = 4, 40.0
STATUS_P99_MS, SLOWER, ENDS = 250, 1.5, 1
SHOWN, ROUNDS = 200, 15
NODES, CPUS = ("h1", "h2", "h3"), 80
GPU = {"name": "GeForce GTX 1070", "memory_total": 8192}
ON_GPU = {"cwd": "/", "request": "[gtx1070]", "results": False}
AT_ONCE = 500


@dataclass(frozen=True)
class Size:
    """How many members are at work, jobs are queued, and jobs one member has."""

    members: int = 200
    queued: int = 10_000
    many: int = 5_000


class TeamBench:
    """A server in front of three real nodes with room for many small jobs, and one GPU."""

    def __init__(self, place: Path, hosts: Hosts) -> None:
        machines = ", ".join(f'{{ ssh = "{name}", cpus = {CPUS} }}' for name in NODES)
        self.place = place
        self.server = TeamServer(place / "server", f"[clusters.lab]\nmachines = [{machines}]\n")
        self.server.env["TOWLINE_SSH_CONFIG"] = str(hosts.ssh_config)
        hosts.set_gpus(NODES[0], [GPU])
        self.server.start()
        self.root = self.server.user("root")

    def cpu_s(self) -> float:
        """What the server's own process has used of the processors so far."""
        assert self.server.process is not None
        words = Path(f"/proc/{self.server.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def members(self, count: int) -> dict[str, str]:
        """So many members, each with a token."""
        tokens = {}
        for number in range(count):
            account = {"name": f"member{number}", "password": PASSWORD}
            self.root.call("POST", "/v1/accounts", account)
            token = self.server.session("").call("POST", "/v1/tokens", account)
            tokens[account["name"]] = token["token"]
        return tokens

    def submit(self, session: RemoteSession, count: int, argv: list[str]) -> list[int]:
        """Jobs that want a GPU each; their numbers."""
        found: list[int] = []
        while len(found) < count:
            body = {"jobs": [{**ON_GPU, "argv": argv}] * min(AT_ONCE, count - len(found))}
            answer = session.call("POST", "/v1/jobs", body)
            found += [job["id"] for job in answer["jobs"]]
        return found

    def stop(self, session: RemoteSession, jobs: list[int]) -> None:
        """Stop all jobs of somebody, and wait until they have ended."""
        for start in range(0, len(jobs), AT_ONCE):
            some = {"ids": jobs[start : start + AT_ONCE], "now": True}
            session.call("POST", "/v1/jobs/stop", some)
        active = "/v1/jobs?state=active"
        wait_until(lambda: not session.call("GET", active)["jobs"], 300)


def at_work(bench: TeamBench, members: int) -> list[Verdict]:
    """Members submit, look and follow at once; whatever they were told was right."""
    tokens = bench.members(members)
    cpu_s = bench.cpu_s()
    url, certificate = bench.root.url, bench.root._certificate
    names = list(tokens)
    clients = []
    for number in range(PROCESSES):
        some = {name: tokens[name] for name in names[number::PROCESSES]}
        told = {"url": url, "certificate": certificate, "members": some, "seconds": SECONDS}
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "bench" / "team_clients.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdin is not None
        json.dump(told, process.stdin)
        process.stdin.close()
        clients.append(process)
    answers: list[dict[str, Any]] = []
    for process in clients:
        assert process.stdout is not None
        answers.append(json.loads(process.stdout.read()))
        process.wait()
    took = sorted(1000 * one for answer in answers for one in answer["statuses"])
    errors = [error for answer in answers for error in answer["errors"]]
    jobs = sum(answer["jobs"] for answer in answers)
    print(f"{members} members for {SECONDS:.0f} s: {jobs} jobs followed to their ends")
    p99 = took[int(len(took) * 0.99)]
    print(f"the server took {bench.cpu_s() - cpu_s:.1f} s of the processors")
    print(f"{len(took)} statuses: median {statistics.median(took):.0f} ms, p99 {p99:.0f} ms")
    print(*errors[:5], sep="\n", end="\n" if errors else "")
    return [
        Verdict(f"{members} members at once, errors", len(errors), "", below=0),
        Verdict(f"status, p99 beside {members} members", p99, "ms", below=STATUS_P99_MS),
    ]


def status_ms(pit: Pit, rows: int) -> float:
    """The time of one `pit status`, the best of many: others use this machine, too."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        shown = pit.well("status")
        best = min(best, 1000 * (time.perf_counter() - began))
        if shown.count(" WAI ") != rows:
            raise RuntimeError(f"{shown.count(' WAI ')} jobs are shown to wait, not {rows}")
    return best


def long_queue(bench: TeamBench, queued: int) -> Verdict:
    """`pit status` of one member, with and without a long queue of another."""
    ann, ben = bench.server.user("ann"), Pit(bench.place / "ben", bench.server).signed_in("ben")
    few = bench.submit(ann, 1, ["sleep", "1000"])
    first = "/v1/team/status"
    wait_until(lambda: ann.call("GET", first)["running"], 60)
    short = bench.submit(ann, SHOWN, ["true"])
    before = status_ms(ben, SHOWN)
    many = bench.submit(ann, queued, ["true"])
    after = status_ms(ben, SHOWN)
    told = bench.server.user("ben").call("GET", first)
    if told["more_waiting"] + len(told["waiting"]) != queued + SHOWN:
        raise RuntimeError(f"not all of them wait: {told['more_waiting']} more")
    print(
        f"pit status: {before:.0f} ms with {SHOWN} queued jobs, {after:.0f} ms with {queued} more"
    )
    bench.stop(ann, [*many, *short, *few])
    return Verdict(f"pit status, {queued:,} queued / {SHOWN}", after / before, "x", below=SLOWER)


def behind_many(bench: TeamBench, many: int) -> Verdict:
    """The first job of one member behind many of another: how many of those end before it."""
    ann, ben = bench.server.user("ann"), bench.server.user("ben")
    jobs = bench.submit(ann, many, ["sleep", "3"])
    wait_until(lambda: ann.call("GET", f"/v1/jobs/{jobs[1]}")["state"] == "done", 120)
    [first] = bench.submit(ben, 1, ["true"])
    wait_until(lambda: ben.call("GET", f"/v1/jobs/{first}")["state"] == "done", 120)
    bens = ben.call("GET", f"/v1/jobs/{first}")
    submitted, started = bens["submitted"], bens["started"]
    others = (ann.call("GET", f"/v1/jobs/{job}") for job in jobs[:200])
    ends = [one for one in others if one.get("ended") and submitted < one["ended"] < started]
    print(f"the first job of another began {started - submitted:.2f} s after it was submitted")
    bench.stop(ann, jobs)
    return Verdict(f"ends before a first job behind {many:,}", len(ends), "", below=ENDS)


@contextlib.contextmanager
def a_team() -> Iterator[TeamBench]:
    with rested_disk(), Hosts(count=len(NODES), inner=False) as hosts:
        bench = TeamBench(folder("team-"), hosts)
        try:
            yield bench
        finally:
            bench.server.stop()


def main(size: Size | None = None) -> list[Verdict]:
    size = size or Size()
    with a_team() as bench:
        verdicts = [long_queue(bench, size.queued), behind_many(bench, size.many)]
        return [*at_work(bench, size.members), *verdicts]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for field in fields(Size):
        parser.add_argument(f"--{field.name}", type=int, default=field.default, metavar="N")
    print(*main(Size(**vars(parser.parse_args()))), sep="\n")
