"""A log that is followed while four transfers share its connection: how late its lines are."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from far_host import Far
from lab import TOW
from verdict import Verdict

#: A line as often as this, with the time at which it was written.
PROGRAM = "while :; do date +%s.%N; sleep 0.1; done"
LATE_S = 0.3


def followed_log(far: Far) -> None:
    """Lines of a job, as a follower sees them, beside transfers in both directions."""
    words = [str(TOW), "run", "-c", "lab", "--no-results", "sh", "-c", PROGRAM]
    follower = subprocess.Popen(
        words,
        cwd=far.empty,
        env=far.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert follower.stdout is not None
    late: list[float] = []
    try:
        follower.stdout.readline()
        with ThreadPoolExecutor(4) as pool:
            transfers = [
                pool.submit(far.tow, "pull", far.job, "big", "beside1"),
                pool.submit(far.tow, "pull", far.job, "half", "beside2"),
                pool.submit(far.tow, "push", far.job, "big0", "beside-up"),
                pool.submit(far.tow, "log", far.job),
            ]
            while not all(transfer.done() for transfer in transfers):
                written = float(follower.stdout.readline())
                late.append(time.time() - written)
            for transfer in transfers:
                transfer.result()
    finally:
        follower.terminate()
        follower.wait(timeout=30)
        follower.stdout.close()
    late.sort()
    middle, latest = late[len(late) // 2], late[-1]
    far.say("log beside 4 transfers", f"lines late by {middle:.2f} s, at most {latest:.2f} s")
    if far.round_trip_s == 0.05:
        name = far.named("log beside 4 transfers, latest line")
        far.found.append(Verdict(name, latest, "s", below=LATE_S))
