"""HyperQueue's local cluster on `true` jobs: prints the seconds from submission to the last end.

A program of its own, so that its threads burden nobody else's measurement.
"""

import contextlib
import io
import sys
import time
from tempfile import TemporaryDirectory

from hyperqueue.cluster import LocalCluster, WorkerConfig
from hyperqueue.job import Job


def measure(count: int, workers: int, cpus: int) -> float:
    """The seconds that `count` jobs take on so many workers."""
    with (
        TemporaryDirectory(prefix="hq-", dir="/tmp") as folder,
        LocalCluster(folder) as cluster,
    ):
        for _ in range(workers):
            cluster.start_worker(WorkerConfig(cores=cpus))
        client = cluster.client()
        _run(client, 100)
        began = time.perf_counter()
        _run(client, count)
        return time.perf_counter() - began


def _run(client, count: int) -> None:  # type: ignore[no-untyped-def]
    job = Job()
    for _ in range(count):
        job.program(["true"], stdout=None, stderr=None)
    client.wait_for_jobs([client.submit(job)])


if __name__ == "__main__":
    jobs, workers, cpus = map(int, sys.argv[1:])
    with contextlib.redirect_stderr(io.StringIO()):
        seconds = measure(jobs, workers, cpus)
    print(seconds)
