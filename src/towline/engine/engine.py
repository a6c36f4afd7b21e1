"""The one loop. Facts queue up; each turn takes all of them, lets the core decide, writes the
outcome in one transaction, and only then does what was decided.

The writing happens in a thread, while new facts queue up for the next turn: the busier it is, the
more facts share a transaction. Nothing else changes jobs.
"""

import asyncio
import functools
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from towline.backends.base import Backend
from towline.core.decide import Core
from towline.core.step import Step
from towline.engine.journal import Journal
from towline.engine.wording import words
from towline.engine.writing import AGAIN_S, Writer
from towline.errors import CannotWrite, Damaged, NotFound
from towline.model.events import (
    Conclude,
    Fact,
    Fed,
    FindAttempt,
    FollowAttempt,
    GiveUpAsked,
    MachineSeen,
    Order,
    ProcessEnded,
    RecallAttempt,
    Recovered,
    RetryAsked,
    SetWaiting,
    StartAttempt,
    StopAsked,
    StopAttempt,
    Submitted,
    UnitEnded,
    WaitingSkipped,
    WaitingStopped,
)
from towline.model.grammar import parse_request
from towline.model.job import Ending, Job, JobSpec, State
from towline.model.journal import Remark
from towline.model.reason import Reason
from towline.model.request import Request
from towline.model.results import PENDING, ResultsState
from towline.store.journal import Note
from towline.store.results import BroughtRow
from towline.store.store import Store, Submission

log = logging.getLogger("towline")

T = TypeVar("T")
#: Of the random part of each attempt's keys.
_TOKEN_BYTES = 4


@functools.lru_cache(4096)
def request_of(text: str) -> Request:
    return parse_request(text)


def no_job(job_id: int) -> NotFound:
    return NotFound(f"there is no job {job_id}", hint="`tow status --all` lists them")


class Asker(Struct):
    """Someone who waits until what they asked for is written down."""

    done: asyncio.Future[None]
    facts: tuple[Fact, ...]
    keys: tuple[Submission, ...] = ()


def _answer(askers: Iterable[Asker], error: BaseException | None = None) -> None:
    for asker in askers:
        if asker.done.done():
            continue
        if error is None:
            asker.done.set_result(None)
        else:
            asker.done.set_exception(error)


def _same_machine(fact: Fact, seen: MachineSeen) -> bool:
    return isinstance(fact, MachineSeen) and fact.machine.name == seen.machine.name


class Engine:
    """Core, store and backend, held together by the loop."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.core = Core(lambda: secrets.token_hex(_TOKEN_BYTES), store.became, store.batches.lines)
        self.clock = clock
        self.backend: Backend | None = None
        self._facts: list[Fact] = []
        self._askers: list[Asker] = []
        #: Why nothing can be written now, and what was decided waits for it.
        self.stuck: CannotWrite | None = None
        self._wake = asyncio.Event()
        #: Who wants to know what happens.
        self.journal = Journal(store.journal)
        self._writer = Writer(store, self.journal.publish)
        self._alarm: asyncio.TimerHandle | None = None
        #: Called with each job that has ended, once that is written down.
        self.on_end: Callable[[Job], None] = lambda job: None
        #: Puts into place what a job printed, before its end is written down; its new `results`,
        #: and what is to be remembered of it.
        self.bring_home: Callable[[Job, tuple[bytes, bytes]], tuple[ResultsState, bytes] | None] = (
            lambda job, said: None
        )
        #: Called where batches that wait for others may go on, or never can.
        self.on_chained: Callable[[Step], None] = lambda step: None
        self._notes: deque[Note] = deque()
        #: Called with all jobs that one turn changed, once that is written down.
        self.on_changed: list[Callable[[Iterable[Job]], None]] = []
        #: When anything last happened, for the idle exit.
        self.last_active = clock()

    # --- the loop ----------------------------------------------------------------------------

    def report(self, fact: Fact) -> None:
        """A backend learned something."""
        if self.stuck and isinstance(fact, MachineSeen):
            # It may be long until all are looked at: of each machine the last is enough.
            self._facts = [old for old in self._facts if not _same_machine(old, fact)]
        self._facts.append(fact)
        self._wake.set()

    async def tell(self, *facts: Fact, key: tuple[Submission, ...] = ()) -> None:
        """Someone asked for something: returns once it is written down."""
        if self.stuck is not None:
            raise self.stuck
        asker = Asker(asyncio.get_running_loop().create_future(), facts, key)
        self._askers.append(asker)
        self._facts += facts
        self._wake.set()
        await asker.done

    async def recover(self) -> None:
        """Take up every job that has not ended where an earlier Engine left it."""
        jobs = tuple((job, request_of(job.spec.request)) for job in self.store.unfinished())
        given_up = tuple(
            (job, attempt, request_of(job.spec.request))
            for job, attempt in self.store.attempts.given_up()
        )
        self._facts.append(Recovered(jobs, given_up))
        await self.tell()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            facts, self._facts = self._facts, []
            askers, self._askers = self._askers, []
            try:
                await self._turn(facts, askers)
            except Exception as error:
                # It must go on for everybody else, whatever it is.
                log.exception("a turn of the loop")
                _answer(askers, error)
            except BaseException as error:
                _answer(askers, error)
                raise
            _answer(askers)

    async def _turn(self, facts: list[Fact], askers: list["Asker"]) -> None:
        now = self.clock()
        step = self.core.handle(facts, now)
        for what, error in step.failures:
            log.error("%s", what, exc_info=error)
        self._set_alarm(step.wake_at, now)
        if step.changed or step.told or any(asker.keys for asker in askers):
            self.last_active = now
            await self._write(step, now, askers)
        if any(type(fact) is not MachineSeen for fact in facts):
            self.last_active = now
        for order in step.orders:
            self._surely(functools.partial(self._perform, order), order.job)
        for job in step.changed.values():
            if job.state.final:
                self._surely(functools.partial(self.on_end, job))
        if step.chained or step.followed:
            self._surely(functools.partial(self.on_chained, step))
        for hear in self.on_changed:
            self._surely(functools.partial(hear, step.changed.values()))

    def _surely(self, do: Callable[[], None], subject: Job | None = None) -> None:
        """Do something that belongs to one job; if it fails, that job alone has the harm."""
        try:
            do()
        except Exception as error:
            log.exception("what follows from a turn")
            if subject is None or subject.attempt is None:
                return
            ending = Ending(cause="lost", text=f"the Engine failed over it: {error!r}")
            for rank in range(len(subject.attempt.placement)):
                self.report(ProcessEnded(subject.id, subject.attempt.number, rank, ending))

    def _set_alarm(self, wake_at: float | None, now: float) -> None:
        """Take a turn then, though nothing happens before."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if wake_at is not None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(max(0.0, wake_at - now), self._wake.set)

    async def _write(self, step: Step, now: float, askers: list["Asker"]) -> None:
        """Write what was decided, however long that takes; what was not accepted yet is refused
        when it cannot be done at once."""
        keys = [key for asker in askers for key in asker.keys]
        brought: list[BroughtRow] = []

        def write() -> list[Job]:
            brought.extend(self._bring_home(step))
            return self._writer.commit(step, now, keys, brought)

        while True:
            try:
                written_off = await self._writer.in_turn(write)
                break
            except CannotWrite as error:
                log.error("%s", error.text)
                self.stuck = error
                self._refuse(step, now, askers, error)
                keys.clear()
                if not (step.changed or step.told):
                    written_off = []
                    break
                await asyncio.sleep(AGAIN_S)
        self.stuck = None
        for job in written_off:
            self.core.drop(job.id, now)
            self.report(UnitEnded(job.id, State.LOST))
            orders = [o for o in step.orders if o.job.id == job.id and isinstance(o, StartAttempt)]
            step.orders = [order for order in step.orders if order not in orders]

    def _refuse(self, step: Step, now: float, askers: list["Asker"], error: CannotWrite) -> None:
        """Nobody waits for a disk: who asked in this turn, or since, is told at once."""
        self.core.take_back(step, now)
        _answer(askers, error)
        later = {id(fact) for asker in self._askers for fact in asker.facts}
        self._facts = [fact for fact in self._facts if id(fact) not in later]
        _answer(self._askers, error)
        self._askers = []

    def _bring_home(self, step: Step) -> list[BroughtRow]:
        """What came with the endings; the rest is fetched later."""
        remembered: list[BroughtRow] = []
        said_by, step.said = step.said, {}
        for job_id, said in said_by.items():
            job = step.changed[job_id]
            home = None
            if job.results == PENDING:
                try:
                    home = self.bring_home(job, said)
                except Exception:
                    log.exception("what job %d printed", job_id)  # it is fetched later
            if home is not None:
                results, brought = home
                remembered.append((job_id, brought))
                step.came_home(replace(job, results=results))
        return remembered

    async def in_turn(self, write: Callable[[], T]) -> T:
        """Write something to the store, after what is being written."""
        return await self._writer.in_turn(write)

    def soon(self, what: str, write: Callable[[], object]) -> None:
        """The same for what nobody waits for, as often as it takes; `what` it is, if it fails."""
        self._writer.soon(what, write)

    def _perform(self, order: Order) -> None:
        assert self.backend is not None
        if isinstance(order, StartAttempt):
            self.backend.start(order.job, request_of(order.job.spec.request))
        elif isinstance(order, FollowAttempt):
            self.backend.follow(order.job, order.follows)
        elif isinstance(order, FindAttempt):
            self.backend.find_again(order.job, request_of(order.job.spec.request))
        elif isinstance(order, StopAttempt):
            self.backend.stop(order.job, order.now)
        elif isinstance(order, RecallAttempt):
            self.backend.recall(order.job)
        elif isinstance(order, Conclude):
            self.backend.conclude(order.job)

    def close(self) -> None:
        self._writer.close()
        self.store.close()

    # --- what people ask ---------------------------------------------------------------------

    async def submit(self, specs: Iterable[JobSpec], key: str = "") -> list[int]:
        """Accept jobs; when this returns they are on disk, and so is the key they came under."""
        specs = list(specs)
        ids = list(self.store.new_ids(len(specs)))
        facts = [
            Submitted(job_id, spec, request_of(spec.request))
            for job_id, spec in zip(ids, specs, strict=True)
        ]
        keys = ((specs[0].owner, key, ids[0], len(ids)),) if key and ids else ()
        await self.tell(*facts, key=keys)
        return ids

    async def stop_waiting(self, jobs: Iterable[Job], reason: Reason) -> None:
        """End jobs of a batch that wait, and that the core has not been given."""
        await self.tell(WaitingStopped(tuple(jobs), reason))

    async def skip_waiting(self, jobs: Iterable[Job], because: Reason) -> None:
        """End jobs of a batch that waits for what can never come true."""
        await self.tell(WaitingSkipped(tuple(jobs), because))

    async def set_waiting(self, jobs: Iterable[Job]) -> None:
        """Let jobs of a batch that ended wait again, to be given to the core in their turn."""
        await self.tell(SetWaiting(tuple(jobs)))

    async def stop(self, ids: Iterable[int], now: bool = False) -> None:
        ids = tuple(ids)
        outside = (self.store.job(job_id) for job_id in ids if job_id not in self.core.jobs)
        waiting = [job for job in outside if job is not None and job.state is State.QUEUED]
        # Far back in a batch: the core does not know of it yet.
        fed = Fed(tuple((job, request_of(job.spec.request)) for job in waiting))
        await self.tell(fed, StopAsked(ids, now))

    async def give_up(self, job_id: int, silent: dict[int, str]) -> None:
        """Stop a job without waiting for processes whose machines do not answer."""
        await self.tell(GiveUpAsked(job_id, silent))

    async def retry(self, ids: Iterable[int]) -> None:
        jobs = [self.job(job_id) for job_id in ids]
        again = tuple((job, request_of(job.spec.request)) for job in jobs if job.state.final)
        await self.tell(RetryAsked(again))

    async def note_results(
        self, job: Job, results: ResultsState, remarks: Iterable[Remark] = (), brought: bytes = b""
    ) -> None:
        """What came home of a job that has ended, and what did not come as it was over there."""
        self._notes.append(Note(job, results, self.clock(), tuple(remarks), brought))
        # The first of many that wait for the store writes what all of them have to say.
        await self._writer.patiently(self._write_notes)

    async def note_brought(self, job_id: int, brought: bytes) -> None:
        """What was brought home of a job, be it that it goes on."""
        await self._writer.patiently(lambda: self.store.results.remember_brought(job_id, brought))

    def _write_notes(self) -> None:
        notes = list(self._notes)
        if notes:
            self.store.results.note(notes)
        for _ in notes:
            self._notes.popleft()

    def remarks(self, job_id: int) -> list[str]:
        """What was remarked when the results of a job came home last."""
        return [words(event) for event in self.store.journal.remarks(job_id)]

    def job(self, job_id: int) -> Job:
        job = self.core.jobs.get(job_id) or self.store.job(job_id)
        if job is None and job_id in self.store.unreadable:
            raise Damaged(
                f"the record of job {job_id} cannot be read: {self.store.unreadable[job_id]}",
                hint="`tow engine log` shows more; the other jobs are not affected",
            )
        if job is None:
            raise no_job(job_id)
        return job

    def jobs(self, ids: Iterable[int]) -> dict[int, Job]:
        """Several jobs that there are."""
        found = {job_id: self.core.jobs.get(job_id) for job_id in ids}
        missing = [job_id for job_id, job in found.items() if job is None]
        found.update((job.id, job) for job in self.store.jobs_of(missing))
        return {job_id: job for job_id, job in found.items() if job is not None}

    def knows(self, job_id: int) -> bool:
        return job_id in self.core.jobs or self.store.job(job_id) is not None

    async def job_where(self, job_id: int, condition: Callable[[Job], bool]) -> Job:
        """The job, as soon as the condition holds for it."""
        with self.journal.subscribe(job=job_id) as news:
            while not condition(job := self.job(job_id)):
                await news.wait()
                news.take()
            return job

    @property
    def active(self) -> bool:
        """False when nothing is running, waiting or being watched."""
        return bool(self.core.jobs or self.core.holds) or self.journal.is_watched
