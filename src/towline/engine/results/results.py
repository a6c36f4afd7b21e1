"""Bring home what jobs made: as soon as they end, or whenever the machine answers again.

Where home is, and what may be replaced there, the submitter's receiver knows (workspace/base.py).
"""

import asyncio
import functools
import logging
import weakref

from towline.backends.base import FileSource, Fleet
from towline.backends.tasks import Tasks
from towline.engine.cleaning.cleaned import explained
from towline.engine.engine import Engine, request_of
from towline.engine.results.fetched import Fetched
from towline.engine.results.fetching import Fetching
from towline.engine.results.followed import FollowedOutputs
from towline.engine.results.places import FetchSlots
from towline.engine.results.shrinking import Shrinking
from towline.errors import AgentError, CannotPlace, HostError, TowlineError, UsageError
from towline.model.job import Job
from towline.model.odd_text import keepable
from towline.model.results import PENDING, at_home, not_fetched
from towline.model.results import ResultsState as Stand
from towline.workspace.base import Receiver

log = logging.getLogger("towline")

_AGAIN_S = 10.0
#: What may be otherwise in a moment is tried so often, and so much later each time.
_MOST_TRIES, _SOON_S = 3, 1.0


class ResultsHome:
    def __init__(self, engine: Engine, fleet: Fleet, receiver: Receiver, scratch: str) -> None:
        self.engine = engine
        self.fleet = fleet
        self.receiver = receiver
        self._places = FetchSlots(fleet)
        self._tasks = Tasks("results", asks_again=False)
        self._fetching: dict[int, asyncio.Task[None]] = {}
        #: Two do not fetch the same job at the same time.
        self._turns: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
        #: Job -> what is being fetched of it.
        self._present: weakref.WeakValueDictionary[int, Fetching] = weakref.WeakValueDictionary()
        self.followed = FollowedOutputs(engine, scratch)
        self.shrinking = Shrinking(engine, fleet)
        engine.on_end = self._ended
        engine.bring_home = self.put_said

    def tidy(self) -> None:
        """Remove what an earlier Engine was just writing; only before anything is fetched."""
        wanted = map(self.engine.store.job, self.engine.store.results.wanted())
        self.receiver.tidy((*filter(None, wanted), *self.engine.store.unfinished()))

    def resume(self) -> None:
        """Fetch what an earlier Engine did not finish."""
        for job in filter(None, map(self.engine.store.job, self.engine.store.results.wanted())):
            self.fetch_soon(job)

    def _ended(self, job: Job) -> None:
        if job.results.here:
            self.receiver.settle_soon(job)  # it came with the news of its end
        if job.results != PENDING:
            self.followed.forget(job.id)
            self.shrinking.soon(job)
        self.fetch_soon(job)

    def fetch_soon(self, job: Job) -> None:
        if job.results == PENDING and job.id not in self._fetching:
            failed = functools.partial(self._failed, job)
            self._fetching[job.id] = self._tasks.spawn(self._fetch_patiently(job.id), failed)

    def _failed(self, job: Job, error: Exception) -> None:
        """Not even that could be told: those who wait for it hear of it in plain words."""
        told = self.engine.note_results(job, not_fetched("the Engine failed: tow engine log"))
        self._tasks.spawn(told, lambda worse: None)

    async def settled(self, job_id: int) -> None:
        """Until the results of a job are home, or cannot come."""
        if task := self._fetching.get(job_id):
            await asyncio.shield(task)

    def coming(self, job_id: int) -> tuple[int, int] | None:
        """How many bytes of a job's results have come, and of how many; None: nothing is coming."""
        present = self._present.get(job_id)
        return (present.came, present.total) if present is not None and present.total else None

    def __len__(self) -> int:
        return len(self._fetching)

    def close(self) -> None:
        self._tasks.close()
        self.shrinking.close()
        self.receiver.close()

    async def _fetch_patiently(self, job_id: int) -> None:
        """Try until the machine answers: the laptop may have been asleep, or the network away."""
        tries, pause_s = 0, _SOON_S
        try:
            while (job := self.engine.job(job_id)).results == PENDING and job.state.final:
                try:
                    async with self._places.one(job):
                        # Where the connection breaks, the place is another's meanwhile.
                        fetched = await self._fetch(job, self.fleet.present)
                    await self._note(job, fetched)
                except HostError:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _AGAIN_S)
                except Exception as error:
                    tries += 1
                    if tries < _MOST_TRIES and _may_pass(error):
                        await asyncio.sleep(_SOON_S)
                        continue
                    why = keepable(self._why_not(job, error))
                    await self.engine.note_results(job, not_fetched(why))
        finally:
            # At once, not when the loop comes to it: the job may end again meanwhile.
            self._fetching.pop(job_id, None)

    def _why_not(self, job: Job, error: Exception) -> str:
        if isinstance(error, AgentError):
            return explained(self.engine, job, error).text
        if isinstance(error, TowlineError):
            return error.text
        log.error("the results of job %d", job.id, exc_info=error)
        return f"the Engine failed over them: {error!r}"

    async def _note(self, job: Job, fetched: Fetched) -> None:
        self.followed.forget(job.id)
        now = self.engine.job(job.id)
        if now.attempt != job.attempt or not now.state.final:
            await self.engine.note_brought(job.id, fetched.placed.memory)
            return  # it was started again meanwhile: these are not its results
        made = fetched.placed.files or job.spec.whole
        results = at_home(keepable(fetched.placed.folder if made else fetched.printed))
        if fetched.placed.in_the_way:
            results = not_fetched(keepable(fetched.obstacle()))
        remarks = fetched.remarks()
        await self.engine.note_results(job, results, remarks, fetched.placed.memory)
        if not fetched.placed.in_the_way:
            self.shrinking.soon(job)

    # --- one job -----------------------------------------------------------------------------

    async def fetch(self, job: Job, back: tuple[str, ...] = ()) -> Fetched:
        """Everything of a job that is there now; `back` narrows it to some paths."""
        try:
            fetched = await self._fetch(job, self.fleet, back)
        except CannotPlace as error:
            hint = f"then, while it is on its machine: tow results {job.id}"
            raise UsageError(error.text, hint=hint) from None
        if back or not job.state.final or job.results.kind != "failed":
            await self.engine.note_brought(job.id, fetched.placed.memory)
        else:
            await self._note(job, fetched)
        if fetched.placed.in_the_way:
            hint = f"move it away, then: tow results {job.id}"
            raise UsageError(fetched.obstacle(), hint=hint)
        return fetched

    async def _fetch(self, job: Job, source: FileSource, back: tuple[str, ...] = ()) -> Fetched:
        assert job.attempt is not None
        async with self._turns.setdefault(job.id, asyncio.Lock()):
            delivery = self.receiver.deliver(job, self.engine.store.results.brought(job.id))
            fetching = Fetching(source, self.followed, job, delivery, back or job.spec.back)
            self._present[job.id] = fetching
            many = len(job.attempt.placement) > 1
            processes = request_of(job.spec.request).processes()
            try:
                for rank, (group, process, _) in enumerate(processes):
                    await fetching.process(rank, f"{group}.{process}" if many else "")
                return await fetching.finish(is_all=job.state.final and not back)
            finally:
                delivery.close()

    def put_said(self, job: Job, said: tuple[bytes, bytes]) -> tuple[Stand, bytes] | None:
        """Hand over all that a job printed, if it made nothing else.

        Where it is now, and what is to be remembered of it. None leaves it to be fetched, which
        also mends what is half written when we are killed here.
        """
        assert job.attempt is not None
        ending = job.attempt.endings[0]
        more = job.spec.whole or job.spec.back or ending.made != 0
        if more or (ending.out_size, ending.err_size) != tuple(map(len, said)):
            return None
        if job.attempt.number > 1 and self.engine.store.results.brought(job.id):
            return None  # what an earlier attempt brought is to be replaced
        return self.receiver.put_printed(job, said)


def _may_pass(error: Exception) -> bool:
    """Whether the same may go well in a moment, without anybody doing anything."""
    if isinstance(error, AgentError):
        return error.code == "failed"
    return isinstance(error, CannotPlace) and error.transient
