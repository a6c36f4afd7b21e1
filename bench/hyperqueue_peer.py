"""HyperQueue's local cluster on jobs `true` or `echo`: prints how many per second it ends.

A program of its own, so that its threads burden nobody else's measurement.
"""

import sys
import time
from collections.abc import Mapping
from tempfile import TemporaryDirectory

from hyperqueue.cluster import LocalCluster, WorkerConfig
from hyperqueue.job import Job


class Watch:
    """Notes how many jobs had ended at each report, of which there is one per second."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.ended, self.after_s = 0, 0.0

    def __call__(self, jobs: Mapping[int, Mapping[str, int]]) -> None:
        ended = sum(job["finished"] for job in jobs.values())
        # The report of the end itself may come up to a second late, which would slow the peer.
        if ended < sum(job["total"] for job in jobs.values()):
            self.ended, self.after_s = ended, time.perf_counter() - self.began


def rate(count: int, workers: int, cpus: int, folder: str, output: str, shell: bool) -> float:
    """Jobs per second on so many workers, all of them successful."""
    with LocalCluster(folder) as cluster:
        for _ in range(workers):
            cluster.start_worker(WorkerConfig(cores=cpus))
        client = cluster.client()
        client.wait_for_jobs([client.submit(many_true(100))])
        job = many_echoes(count, output, shell) if output else many_true(count)
        watch = Watch()
        failed = client.connection.wait_for_jobs([client.submit(job).id], watch)
        whole_s = time.perf_counter() - watch.began
        if failed:
            raise RuntimeError(f"HyperQueue says that {len(failed)} jobs failed")
        return watch.ended / watch.after_s if watch.ended else count / whole_s


def many_true(count: int) -> Job:
    """One submission of so many tasks, whose output is kept nowhere."""
    job = Job()
    for _ in range(count):
        job.program(["true"], stdout=None, stderr=None)
    return job


def many_echoes(count: int, output: str, shell: bool) -> Job:
    """One submission of so many `echo`, whose output and errors are files of their own."""
    job = Job()
    for number in range(count):
        words = ["bash", "-c", f"echo {number}"] if shell else ["echo", str(number)]
        place = f"{output}/{number}"
        job.program(words, stdout=f"{place}.out", stderr=f"{place}.err")
    return job


if __name__ == "__main__":
    with TemporaryDirectory(prefix="hq-") as folder:
        output = sys.argv[4] if len(sys.argv) > 4 else ""
        shell = "--no-shell" not in sys.argv
        print(rate(*map(int, sys.argv[1:4]), folder=folder, output=output, shell=shell))
