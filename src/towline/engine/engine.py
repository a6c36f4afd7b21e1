"""The one loop. Facts queue up; each turn takes all of them, lets the core decide, writes the
outcome in one transaction, and only then does what was decided.

The writing happens in a thread, while new facts queue up for the next turn: the busier it is, the
more facts share a transaction. Nothing else changes jobs.
"""

import asyncio
import functools
import itertools
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from msgspec.structs import replace

from towline.backends.base import Backend
from towline.core.decide import Core, Step
from towline.errors import NotFound
from towline.model.events import (
    Conclude,
    Fact,
    Fed,
    FindAttempt,
    GiveUpAsked,
    MachineSeen,
    Order,
    Recovered,
    RetryAsked,
    StartAttempt,
    StopAsked,
    StopAttempt,
    Submitted,
)
from towline.model.grammar import parse_request
from towline.model.job import WANTED, Job, JobSpec, State
from towline.model.odd_text import keepable, original
from towline.model.request import Request
from towline.store.store import BroughtRow, Note, Store, Submission

T = TypeVar("T")
#: Of the random part of each attempt's keys.
_TOKEN_BYTES = 4
#: How remarks about results begin.
KEPT, LEFT_OUT = "kept ", "left out "
#: How it is told that a job's folder was removed from its machine.
CLEANED = "cleaned up: "


@functools.lru_cache(4096)
def request_of(text: str) -> Request:
    return parse_request(text)


class Engine:
    """Core, store and backend, held together by the loop."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.core = Core(new_token=lambda: secrets.token_hex(_TOKEN_BYTES))
        self.clock = clock
        self.backend: Backend | None = None
        self._facts: list[Fact] = []
        self._submissions: list[Submission] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._watchers: dict[int, set[asyncio.Event]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        #: Called with each job that has ended, once that is written down.
        self.on_end: Callable[[Job], None] = lambda job: None
        #: Puts into place what a job printed, before its end is written down; its new `results`,
        #: and what is to be remembered of it.
        self.bring_home: Callable[[Job, tuple[bytes, bytes]], tuple[str, bytes] | None] = (
            lambda job, said: None
        )
        self._notes: deque[Note] = deque()
        #: Called with a job whose results are home, or cannot come.
        self.on_noted: Callable[[Job], None] = lambda job: None
        #: Called with all jobs that one turn changed, once that is written down.
        self.on_changed: Callable[[Iterable[Job]], None] = lambda jobs: None
        #: When anything last happened, for the idle exit.
        self.last_active = clock()

    # --- the loop ----------------------------------------------------------------------------

    def report(self, fact: Fact) -> None:
        """A backend learned something."""
        self._facts.append(fact)
        self._wake.set()

    async def tell(self, fact: Fact) -> None:
        """Someone asked for something: returns once it is written down."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._facts.append(fact)
        self._waiting.append(done)
        self._wake.set()
        await done

    async def recover(self) -> None:
        """Take up every job that has not ended where an earlier Engine left it."""
        jobs = tuple((job, request_of(job.spec.request)) for job in self.store.unfinished())
        given_up = tuple(
            (job, attempt, request_of(job.spec.request)) for job, attempt in self.store.given_up()
        )
        await self.tell(Recovered(jobs, given_up))

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            facts, self._facts = self._facts, []
            waiting, self._waiting = self._waiting, []
            submissions, self._submissions = self._submissions, []
            try:
                await self._turn(facts, submissions)
            except BaseException as error:
                for done in waiting:
                    if not done.done():
                        done.set_exception(error)
                raise
            for done in waiting:
                if not done.done():
                    done.set_result(None)

    async def _turn(self, facts: list[Fact], submissions: list[Submission]) -> None:
        now = self.clock()
        step = self.core.handle(facts, now)
        self._set_alarm(step.wake_at, now)
        if step.changed or step.told:
            self.last_active = now
            await self._write(step, now, submissions)
        if any(type(fact) is not MachineSeen for fact in facts):
            self.last_active = now
        for order in step.orders:
            self._perform(order)
        for job in step.changed.values():
            if job.state.final:
                self.on_end(job)
            self._wake_watchers(job.id)
        self.on_changed(step.changed.values())

    def _set_alarm(self, wake_at: float | None, now: float) -> None:
        """Take a turn then, though nothing happens before."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if wake_at is not None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(max(0.0, wake_at - now), self._wake.set)

    def _wake_watchers(self, job_id: int) -> None:
        for watcher in self._watchers.get(job_id, ()):
            watcher.set()

    async def _write(self, step: Step, now: float, submissions: list[Submission]) -> None:
        def write() -> None:
            brought = self._bring_home(step)
            self.store.commit(
                step.changed, step.fresh, step.told, now, step.past, submissions, brought
            )

        await self.in_turn(write)

    def _bring_home(self, step: Step) -> list[BroughtRow]:
        """What came with the endings; the rest is fetched later."""
        remembered: list[BroughtRow] = []
        for job_id, said in step.said.items():
            job = step.changed[job_id]
            home = self.bring_home(job, said) if job.results == WANTED else None
            if home is not None:
                results, brought = home
                remembered.append((job_id, brought))
                step.changed[job_id] = job = replace(job, results=results)
                if not job.spec.batch:
                    step.tell(job, f"results: {results}")
        return remembered

    async def in_turn(self, write: Callable[[], T]) -> T:
        """Write something to the store, after what is being written."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, write)

    def _perform(self, order: Order) -> None:
        assert self.backend is not None
        if isinstance(order, StartAttempt):
            self.backend.start(order.job, request_of(order.job.spec.request))
        elif isinstance(order, FindAttempt):
            self.backend.find_again(order.job, request_of(order.job.spec.request))
        elif isinstance(order, StopAttempt):
            self.backend.stop(order.job, order.now)
        elif isinstance(order, Conclude):
            self.backend.conclude(order.job)

    def close(self) -> None:
        self._writer.shutdown()
        self.store.close()

    # --- what people ask ---------------------------------------------------------------------

    async def submit(self, specs: Iterable[JobSpec], key: str = "") -> list[int]:
        """Accept jobs; when this returns they are on disk, and so is the key they came under."""
        specs = list(specs)
        ids = list(self.store.new_ids(len(specs)))
        if key and ids:
            self._submissions.append((key, ids[0], len(ids)))
        for job_id, spec in zip(ids, specs, strict=True):
            self._facts.append(Submitted(job_id, spec, request_of(spec.request)))
        await self.tell(StopAsked(()))
        return ids

    async def stop(self, ids: Iterable[int], now: bool = False) -> None:
        ids = tuple(ids)
        outside = (self.store.job(job_id) for job_id in ids if job_id not in self.core.jobs)
        waiting = [job for job in outside if job is not None and job.state is State.QUEUED]
        if waiting:
            # Far back in a batch: the core does not know of it yet.
            self._facts.append(Fed(tuple((job, request_of(job.spec.request)) for job in waiting)))
        await self.tell(StopAsked(ids, now))

    async def give_up(self, job_id: int, silent: dict[int, str]) -> None:
        """Stop a job without waiting for processes whose machines do not answer."""
        await self.tell(GiveUpAsked(job_id, silent))

    async def retry(self, ids: Iterable[int]) -> None:
        jobs = [self.job(job_id) for job_id in ids]
        again = tuple((job, request_of(job.spec.request)) for job in jobs if job.state.final)
        await self.tell(RetryAsked(again))

    async def note_results(
        self, job: Job, results: str, remarks: Iterable[str] = (), brought: bytes = b""
    ) -> None:
        """What came home of a job that has ended, and what did not come as it was over there."""
        last = f"results: {original(results)}" if results else "no results"
        # Whoever follows a batch hears of these.
        loud = "remark" if job.spec.batch else ""
        told = [(loud, keepable(text)) for text in remarks]
        told.append(("" if results[:1] in ("", "/", "\0") else loud, keepable(last)))
        self._notes.append((job.id, results, self.clock(), told, brought))
        # The first of many that wait for the store writes what all of them have to say.
        await self.in_turn(self._write_notes)
        self._wake_watchers(job.id)
        self.on_noted(job)

    async def note_brought(self, job_id: int, brought: bytes) -> None:
        """What was brought home of a job, be it that it goes on."""
        await self.in_turn(lambda: self.store.remember_brought(job_id, brought))

    def _write_notes(self) -> None:
        notes = []
        while self._notes:
            notes.append(self._notes.popleft())
        if notes:
            self.store.note_results(notes)

    def remarks(self, job_id: int) -> list[str]:
        """What was remarked when the results of a job came home last."""
        texts = [original(text) for _, text in reversed(self.store.history(job_id))]
        texts = [text for text in texts if not text.startswith(CLEANED)]
        is_remark = (text.startswith((KEPT, LEFT_OUT)) for text in texts[1:])
        return texts[1 : 1 + len(list(itertools.takewhile(bool, is_remark)))][::-1]

    def job(self, job_id: int) -> Job:
        job = self.core.jobs.get(job_id) or self.store.job(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id}", hint="`tow status --all` lists them")
        return job

    def knows(self, job_id: int) -> bool:
        return job_id in self.core.jobs or self.store.job(job_id) is not None

    async def job_where(self, job_id: int, condition: Callable[[Job], bool]) -> Job:
        """The job, as soon as the condition holds for it."""
        watcher = asyncio.Event()
        self._watchers.setdefault(job_id, set()).add(watcher)
        try:
            while not condition(job := self.job(job_id)):
                await watcher.wait()
                watcher.clear()
            return job
        finally:
            self._watchers[job_id].discard(watcher)
            if not self._watchers[job_id]:
                del self._watchers[job_id]

    @property
    def active(self) -> bool:
        """False when nothing is running, waiting or being watched."""
        return bool(self.core.jobs or self._watchers)
