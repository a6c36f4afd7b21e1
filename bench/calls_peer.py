"""Dask or Ray on calls of a tiny function: prints calls per second, one by one and in parts.

A program of its own, so that its threads burden nobody else's measurement.
"""

import sys
import time
from collections.abc import Callable

#: Parts per worker, where the peer has no size of its own: the best of those that were tried.
PARTS = 4


def more(x: int) -> int:
    return x + 1


def rest(seconds: float) -> None:
    time.sleep(seconds)


def each(part: list[int]) -> list[int]:
    return [more(x) for x in part]


def timed(count: int, do: Callable[[], list[int]]) -> float:
    began = time.perf_counter()
    if do() != list(range(1, count + 1)):
        raise RuntimeError("not what was called")
    return count / (time.perf_counter() - began)


def parts_of(count: int, workers: int) -> list[list[int]]:
    size = -(-count // (workers * PARTS))
    return [list(range(at, min(at + size, count))) for at in range(0, count, size)]


def dask(count: int, workers: int) -> list[float]:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        client.gather(client.map(rest, [0.2] * workers, pure=False))
        parts = parts_of(count, workers)

        def together() -> list[int]:
            return [x for part in client.gather(client.map(each, parts)) for x in part]

        single = timed(count, lambda: list(client.gather(client.map(more, range(count)))))
        own = timed(
            count,
            lambda: list(
                client.gather(client.map(more, range(count), batch_size=count, pure=False))
            ),
        )
        return [single, own, timed(count, together)]


def ray(count: int, workers: int) -> list[float]:
    import ray
    from ray.util.multiprocessing import Pool

    ray.init(num_cpus=workers, include_dashboard=False, logging_level="error")
    remote_each = ray.remote(each)
    wait = ray.remote(rest)
    ray.get([wait.remote(0.2) for _ in range(workers)])
    parts = parts_of(count, workers)

    def together() -> list[int]:
        return [x for part in ray.get([remote_each.remote(p) for p in parts]) for x in part]

    found = [timed(count, together)]
    with Pool(workers) as pool:
        pool.map(rest, [0.2] * workers)
        # With a chunk size that it chooses itself.
        found.append(timed(count, lambda: list(pool.map(more, range(count)))))
    ray.shutdown()
    return found


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    print(*{"dask": dask, "ray": ray}[name](*map(int, numbers)))
