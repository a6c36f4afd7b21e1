"""Batches, as programs see them."""

from typing import NotRequired, TypedDict

from towline.api.jobs import After, JobView, MachineReason


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
    #: What it is to run after, and what of that it still waits for.
    after: list[After]
    waits_for: list[After]
    #: Whether somebody holds it, and the time before which it does not begin.
    held: bool
    begin: float | None
    counts: dict[str, int]
    rate: float
    eta_s: float | None
    machines: dict[str, MachineShare]
    why: str
    home: bool
    #: Jobs that have ended and whose results are not home; once all have ended, from where they do
    #: not come, because it does not answer.
    pending: int
    away: list[MachineReason]
    #: To follow it from here on.
    seq: int
    #: While what its jobs need travels: how many bytes of it have arrived, and of how many.
    sending: NotRequired[list[int]]


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
