"""`towline.Executor`: calls of functions over warm workers on a cluster.

A worker is an ordinary job that takes one call after the other. They are started as calls come, up
to `workers`, and end with the executor. Nothing runs twice: a call whose worker went away after it
may have begun fails, unless `retries` says that it may be made again.
"""

from __future__ import annotations

import atexit
import itertools
import math
import pickle
import threading
import time
from collections import deque
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from towline.client.session import Session
from towline.client.submission import this_folder
from towline.errors import TowlineError, UsageError
from towline.functions.failures import NoWorkers, WorkerLost, failure
from towline.functions.progress import CallProgress, progress_of
from towline.functions.remote.wire import VALUE
from towline.functions.starting import start_workers
from towline.functions.workers import Worker

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from towline.client.job import Job

#: A worker is given as many calls at a time as it does in so long, so that none waits for the way.
_AHEAD_S, _MOST_AHEAD = 0.2, 64
#: Parts of a `map` per worker: small enough that all end at about the same time.
_PARTS = 4
#: So many workers in a row that went away before they were ready: there is no use in more.
_MOST_LOST = 3


class CallFuture(futures.Future[Any]):
    """The future of a call; `job` is the worker that got it, None before."""

    job: Job | None = None
    #: Whether it is of a part of a `map`.
    is_part = False


@dataclass(eq=False)
class _Call:
    payload: bytes
    number: int = 0
    future: CallFuture = field(default_factory=CallFuture)
    tries: int = 0
    given_at: float = 0.0


class Executor(futures.Executor):
    """A `concurrent.futures.Executor` whose calls run on a cluster.

    `request` and the other options say what each worker needs, as for `towline.submit`. The folder
    (by default this one) travels, so that its modules can be imported over there.
    """

    def __init__(
        self,
        cluster: str | None = None,
        request: str | None = None,
        *,
        workers: int = 4,
        retries: int = 0,
        python: str = "",
        folder: str | os.PathLike[str] | None = None,
        session: Session | None = None,
        progress: bool = False,
        **options: Any,
    ) -> None:
        for name, value, least in (("workers", workers, 1), ("retries", retries, 0)):
            if not isinstance(value, int) or value < least:
                raise UsageError(f"{name} must be a whole number from {least} on, not {value!r}")
        #: Without a cluster and a request, the configured ones.
        named = {"cluster": cluster, "request": request}
        self._options = {"title": "workers", "results": False, **options, **named}
        self._most = workers
        self._retries = retries
        self._python = python
        self._folder = Path(this_folder() if folder is None else folder).absolute()
        self.session = session or Session()
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._waiting: deque[_Call] = deque()
        self._workers: set[Worker] = set()
        self._starting = self._lost = 0
        self._pace = _Pace()
        self._closed = self._killed = False
        self._broken: TowlineError | None = None
        self._all_over = threading.Condition(self._lock)
        self._progress = progress_of(str(self._options["title"])) if progress else None
        atexit.register(self.kill)

    # --- what programs call -------------------------------------------------------------------

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> CallFuture:
        """Have it called on the cluster."""
        return self._accept(packed_call((fn, args, kwargs)))

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
    ) -> Iterator[Any]:
        """Its values for all rows of the iterables, in their order; several travel together."""
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        deadline = None if timeout is None else time.monotonic() + timeout
        rows = list(zip(*iterables, strict=False))
        size = chunksize or math.ceil(len(rows) / (self._most * _PARTS))
        parts = [rows[place : place + size] for place in range(0, len(rows), max(1, size))]
        return _values(
            [self._accept(packed_call((fn, part)), len(part)) for part in parts], deadline
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the workers end when all are done."""
        with self._lock:
            self._closed = True
            if cancel_futures:
                while self._waiting:
                    self._waiting.popleft().future.cancel()
            self._end_idle()
        if wait:
            with self._all_over:
                self._all_over.wait_for(lambda: not self._workers and not self._starting)
            atexit.unregister(self.kill)
            if self._progress is not None:
                self._progress.close()

    def kill(self) -> None:
        """End the workers at once; calls that have not been done fail."""
        with self._lock:
            self._closed = self._killed = True
            while self._waiting:
                self._waiting.popleft().future.cancel()
            jobs = [worker.job for worker in self._workers]
        atexit.unregister(self.kill)
        if jobs:
            self.session.stop(*jobs, now=True)

    @property
    def jobs(self) -> list[Job]:
        """Its workers."""
        with self._lock:
            return sorted((worker.job for worker in self._workers), key=lambda job: job.id)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        if exc_type is not None and not issubclass(exc_type, Exception):
            # Ctrl-C: whoever leaves does not wait for what is still to be done.
            self.kill()
        self.shutdown(wait=True)
        return None

    # --- what workers tell --------------------------------------------------------------------

    def ready(self, worker: Worker) -> None:
        with self._lock:
            self._lost = 0
            self._feed(worker)
            self._end_idle()

    def arrived(self, worker: Worker, call: _Call, kind: bytes, payload: bytes) -> None:
        with self._lock:
            self._pace.took(time.monotonic() - call.given_at, len(worker.given) + 1)
            self._feed(worker)
            self._end_idle()
        _settle(call.future, kind, payload)

    def over(self, worker: Worker) -> None:
        """Its job has ended, or it is no use any more: what it was given goes on elsewhere."""
        begun: set[int] | None = set()
        if worker.given:
            begun = worker.begun()
            for kind, number, payload in worker.kept():
                if (kept := worker.given.pop(number, None)) is not None:
                    _settle(kept.future, kind, payload)
        how = _how(worker) if worker.given or not worker.was_ready else ""
        with self._lock:
            self._workers.discard(worker)
            for call in reversed(list(worker.given.values())):
                self._after_loss(worker, call, begun is None or call.number in begun, how)
            self._judge(worker, how)
            if not self._waiting:
                self._end_idle()
            self._start_more()
            self._all_over.notify_all()

    # --- inside, with the lock held -----------------------------------------------------------

    def _accept(self, payload: bytes, weight: int = 0) -> CallFuture:
        with self._lock:
            if self._broken:
                raise self._broken
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            call = _Call(payload)
            call.future.is_part, weight = weight > 0, weight or 1
            if (progress := self._progress) is not None:
                progress.came(weight)
                call.future.add_done_callback(lambda _: _count(progress, call.future, weight))
            self._waiting.append(call)
            for worker in self._workers:
                if worker.was_ready:
                    self._feed(worker)
            self._start_more()
        return call.future

    def _feed(self, worker: Worker) -> None:
        while self._waiting and len(worker.given) < self._pace.ahead:
            call = self._waiting.popleft()
            if not call.tries and not call.number:
                call.future.job = worker.job
                if not call.future.set_running_or_notify_cancel():
                    continue
            call.future.job = worker.job
            call.number = next(self._numbers)
            call.given_at = time.monotonic()
            worker.give(call)

    def _end_idle(self) -> None:
        if self._closed and not self._waiting:
            for worker in self._workers:
                if not worker.given:
                    worker.end()

    def _start_more(self) -> None:
        """As many workers as there are calls for them, up to the most."""
        there = len(self._workers) + self._starting
        idle = sum(not worker.given for worker in self._workers) + self._starting
        wanted = min(self._most - there, len(self._waiting) - idle)
        if wanted > 0 and not self._broken and not self._killed:
            self._starting += wanted
            threading.Thread(target=self._start, args=(wanted,), daemon=True).start()

    def _start(self, count: int) -> None:
        """Submit workers; in a thread of its own, since the folder is read for that."""
        try:
            made, error = (
                start_workers(self, self._folder, self._options, self._python, count),
                None,
            )
        except Exception as raised:
            made, error = [], raised
        with self._lock:
            self._starting -= count
            self._workers.update(made)
            if error is not None:
                self._break(_as_ours(error))
            for worker in made:
                worker.thread.start()
            self._end_idle()
            killed = [worker.job for worker in made] if self._killed else []
            self._all_over.notify_all()
        if killed:
            self.session.stop(*killed, now=True)

    def _after_loss(self, worker: Worker, call: _Call, may_have_begun: bool, how: str) -> None:
        call.tries += may_have_begun
        if (call.tries <= self._retries or not may_have_begun) and not self._killed:
            self._waiting.appendleft(call)
            return
        how = how.split("\n")[0]
        text = f"the worker went away with the call ({how}); whether it was done is not known"
        hint = f"what it printed: tow log {worker.job.id}; Executor(retries=1) calls it again"
        call.future.set_exception(WorkerLost(text, hint))

    def _judge(self, worker: Worker, how: str) -> None:
        """Whether another one in its place would do better."""
        state = worker.job.facts["state"]
        if self._closed and not self._waiting:
            return
        if state == "stopped" and not self._workers:
            self._break(NoWorkers("its workers were stopped", "make another Executor"))
        elif not worker.was_ready:
            self._lost += 1
            if state == "failed" or self._lost >= _MOST_LOST or worker.error is not None:
                self._break(worker.error or NoWorkers(f"a worker did not start: {how}"))

    def _break(self, error: TowlineError) -> None:
        """There will be no workers: every call that waits fails, and so does every later one."""
        self._broken = self._broken or error
        while self._waiting:
            call = self._waiting.popleft()
            if call.number or call.future.set_running_or_notify_cancel():
                call.future.set_exception(self._broken)


class _Pace:
    """How long calls take, and so how many of them a worker should have at a time."""

    def __init__(self) -> None:
        self.ahead = 1
        self._mean_s = 0.0

    def took(self, seconds: float, queued: int) -> None:
        each_s = seconds / max(1, queued)
        self._mean_s = each_s if not self._mean_s else 0.8 * self._mean_s + 0.2 * each_s
        self.ahead = max(1, min(_MOST_AHEAD, int(_AHEAD_S / max(self._mean_s, 1e-6))))


def _count(progress: CallProgress, future: CallFuture, weight: int) -> None:
    """One more is over; of a part of a `map`, each of its calls."""
    if future.cancelled() or future.exception() is not None:
        progress.went(weight, weight)
        return
    failed = sum(kind != VALUE for kind, _ in future.result()) if future.is_part else 0
    progress.went(weight, failed)


def packed_call(call: tuple[Any, ...]) -> bytes:
    try:
        packed: bytes = cloudpickle.dumps(call)
    except Exception as error:
        name = getattr(call[0], "__qualname__", repr(call[0]))
        raise TypeError(f"the call of {name} cannot travel: {error}") from error
    return packed


def _settle(future: CallFuture, kind: bytes, payload: bytes) -> None:
    try:
        if kind == VALUE:
            future.set_result(pickle.loads(payload))
        else:
            future.set_exception(failure(payload))
    except futures.InvalidStateError:
        pass  # It failed before, when its worker seemed to be gone.
    except Exception as error:
        future.set_exception(error)


def _values(parts: list[CallFuture], deadline: float | None) -> Iterator[Any]:
    """The values of all rows in their order; what one raised is raised in its place."""
    try:
        parts.reverse()
        while parts:
            left = None if deadline is None else deadline - time.monotonic()
            for kind, value in parts.pop().result(left):
                if kind != VALUE:
                    raise failure(value)
                yield value
    finally:
        for part in parts:
            part.cancel()


def _as_ours(error: Exception) -> TowlineError:
    if isinstance(error, TowlineError):
        return error
    return NoWorkers(f"workers could not be started: {error!r}")


def _how(worker: Worker) -> str:
    """How its job ended, and what it said last if it never was ready."""
    if worker.error is not None:
        return worker.error.text
    try:
        how = str(worker.job.wait(timeout=60))
        said = "" if worker.was_ready else worker.job.log("err", lines=5).strip()
    except (TowlineError, TimeoutError):
        return f"job {worker.job.id} {worker.job.facts['state']}"
    return how + (f"\n{said}" if said else "")
