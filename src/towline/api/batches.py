"""Batches, as programs see them."""

from typing import TypedDict

from towline.api.jobs import JobView


class MachineShare(TypedDict):
    """How many jobs of a batch a machine runs, and how many on each of its GPUs."""

    running: int
    gpus: dict[str, int]


class BatchView(TypedDict):
    name: str
    cluster: str
    owner: str
    folder: str
    request: str
    submitted: float
    ended: float | None
    count: int
    first: int
    max_parallel: int
    fail_fast: bool
    stopped: bool
    counts: dict[str, int]
    rate: float
    eta_s: float | None
    machines: dict[str, MachineShare]
    why: str
    home: bool
    #: To follow it from here on.
    seq: int


class BatchAnswer(TypedDict):
    batch: BatchView


class BatchList(TypedDict):
    batches: list[BatchView]


class BatchDetail(TypedDict):
    batch: BatchView
    jobs: list[JobView]


class BatchRetried(TypedDict):
    batch: BatchView
    retried: int


class BatchResults(TypedDict):
    batch: BatchView
    #: Jobs whose results are not home.
    pending: int
