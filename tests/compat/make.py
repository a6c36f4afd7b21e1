"""Write down a store as the present version makes it, for all later ones to open.

After a new step in store/migrations.py: `python tests/compat/make.py`.
"""

import sqlite3
import tempfile
from pathlib import Path

from msgspec.structs import replace

from towline.model.batch import Batch, Line
from towline.model.job import Attempt, Ending, Job, JobSpec, State
from towline.model.journal import Kind, Told
from towline.model.machine import Slot
from towline.model.results import at_home
from towline.model.team.node import TeamNode
from towline.model.team.rules import Share, UseLimits
from towline.store.migrations import MIGRATIONS
from towline.store.store import Store

SPEC = JobSpec(
    argv=("python", "train.py", "--lr", "0.1"),
    cluster="lab",
    owner="me",
    request="[gtx1070]",
    title="python train.py",
    env={"A": "1"},
    time_s=60.0,
    retries=1,
)


def fill(store: Store) -> None:
    """A job that is done at its second attempt, one that waits, and a batch of two that wait."""
    store.new_ids(2)
    first, second = (Job(number, SPEC, State.QUEUED, 99.0 + number) for number in (1, 2))
    told = [Told(Kind.SUBMITTED, None, first), Told(Kind.SUBMITTED, None, second)]
    store.commit({1: first, 2: second}, {1, 2}, told, 100.0, submissions=[("me", "k", 1, 2)])
    attempt = Attempt(1, (Slot("gpu1", (0,)),), started=102.0)
    silent = replace(attempt, endings={0: Ending(cause="silent", text="gpu1 was silent")})
    ending = Ending(code=0, started=102.0, ended=103.0)
    done = replace(
        first,
        state=State.DONE,
        started=102.0,
        ended=103.0,
        exit_code=0,
        attempt=replace(attempt, number=2, endings={0: ending}),
        results=at_home("/home/me/job_results/1"),
    )
    store.commit({1: done}, set(), [Told(Kind.ENDED, first, done)], 103.0, [(1, silent)])
    batch = Batch("sweep", replace(SPEC, argv=(), title=""), store.new_ids(2)[0], 2, 104.0)
    lines = [Line(argv=("echo", str(n)), number=n, title=f"echo {n}") for n in (1, 2)]
    store.batches.add(batch, lines, "b")
    store.remember_environment({"A": "1"})
    store.remember_cluster("lab", b'[{"machines":["gpu1"]},{},300.0]')
    store.remember_machine({"gpu1": b'[{"ssh":"gpu1"},300.0]'})
    store.nodes.add(TeamNode("n0", "ssh://pit@n0", groups=("staff",)))
    store.nodes.set_alias("gtx1070", "GeForce GTX 1070", new=True)
    store.nodes.set_limits("me", False, UseLimits(gpus=2))
    store.commit({}, (), (), 104.0, used=[Share("me", 8.0, 103.0)])
    store.remember_forward(8080, 2, 80)
    store.remember_service(2, "tensorboard", 20001)
    store.results.remember_brought(1, b'{"top":"/home/me/job_results","files":{}}')


def main() -> None:
    number = len(MIGRATIONS)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "store.db"))
        store = Store(path)
        fill(store)
        store.close()
        lines = list(sqlite3.connect(path).iterdump())
    about = f"-- A store as format {number} had it. It must open for ever."
    text = "\n".join([about, f"PRAGMA user_version = {number};", *lines, ""])
    Path(__file__).with_name(f"store-{number}.sql").write_text(text)


if __name__ == "__main__":
    main()
