"""The backend for clusters with a queue of their own: hand jobs over, and follow them there."""

from collections.abc import AsyncIterator

from towline.backends.base import HearReadings, QueueSilent, Report
from towline.backends.machines.backend import Machines
from towline.backends.machines.exec_in_job import Said, run_in_job
from towline.backends.queue import asking
from towline.backends.queue.dialect import Dialect
from towline.backends.queue.handover import Followed, Handover
from towline.backends.queue.job_script import group_of, handover_key, message, pack_of, queueing
from towline.backends.queue.queue import Queue
from towline.backends.queue.state import Attempt, Place
from towline.backends.terms import QueueStanding
from towline.errors import Impossible, NotFound
from towline.model.events import Follow, ProcessEnded
from towline.model.grammar import parse_request
from towline.model.job import Ending, Job, Queueing, State, key_of
from towline.model.request import Request
from towline.probes.nodes import QueueNode


def _runs(job: Job) -> bool:
    """Whether all its processes were seen to run, by an earlier Engine perhaps."""
    return job.state in (State.RUNNING, State.STOPPING) and job.started is not None


class QueueBackend:
    """Every queue of one kind that the Engine knows.

    The channels to their access nodes are those of `machines`.
    """

    def __init__(
        self, dialect: Dialect, engine_id: str, report: Report, machines: Machines
    ) -> None:
        self.dialect = dialect
        self.engine_id = engine_id
        self.report = report
        self.machines = machines
        self.queues: dict[str, Queue] = {}
        #: What was followed last, as the Engine and as queues know it.
        self._follows: tuple[tuple[Follow, ...], tuple[Followed, ...]] = (), ()
        self.hear_readings: HearReadings = lambda readings: None

    @property
    def kind(self) -> str:
        return self.dialect.kind

    def join(self, cluster: str, setup_login: str = "") -> Queue:
        """Use the machine of this name as the access node of a cluster."""
        if cluster not in self.queues:
            driver = self.machines.drivers[cluster]
            self.queues[cluster] = Queue(
                self.dialect, cluster, self.engine_id, driver, self.report, self._is_wanted
            )
            self.queues[cluster].readings.hear = lambda found: self.hear_readings(found)
        commands = self.queues[cluster].commands
        if commands.setup != setup_login:
            commands.setup, commands.login = setup_login, setup_login or False
        return self.queues[cluster]

    def leave(self, cluster: str) -> None:
        if queue := self.queues.pop(cluster, None):
            queue.close()

    def is_busy(self, cluster: str) -> bool:
        """Whether something of ours is in the queue of a cluster."""
        return cluster in self.queues and bool(self.queues[cluster].wanted)

    def _is_wanted(self, key: str) -> bool:
        return any(key in queue.wanted for queue in self.queues.values())

    def close(self) -> None:
        for queue in self.queues.values():
            queue.close()

    # --- starting and stopping ---------------------------------------------------------------

    def start(self, job: Job, request: Request) -> None:
        self._want(job, request, again=False)

    def find_again(self, job: Job, request: Request) -> None:
        self._want(job, request, again=True)
        follows = job.attempt is not None and job.attempt.follows
        if job.spec.after and not follows and (queue := self.queues.get(job.spec.cluster)):
            # The Engine before this one may not have been able to tell it over there.
            queue.release(handover_key(self.engine_id, job))

    def follow(self, job: Job, follows: tuple[Follow, ...] | None) -> None:
        if queue := self.queues.get(job.spec.cluster):
            queue.follow(handover_key(self.engine_id, job), self._followed(follows))

    def _followed(self, follows: tuple[Follow, ...] | None) -> tuple[Followed, ...] | None:
        """The same in keys; what many jobs follow is the same object for all of them."""
        if not follows:
            return follows  # type: ignore[return-value]
        if self._follows[0] is not follows:
            self._follows = follows, tuple(map(self._one_followed, follows))
        return self._follows[1]

    def _one_followed(self, one: Follow) -> Followed:
        attempts = tuple(
            (
                key_of(self.engine_id, ahead.job, ahead.attempt, 0).rpartition("-")[0],
                len(ahead.attempt.placement),
                ahead.last,
            )
            for ahead in one.attempts
        )
        return Followed(one.awaited.when, one.awaited.job, one.awaited.batch, one.failed, attempts)

    def _want(self, job: Job, request: Request, again: bool) -> None:
        assert job.attempt is not None
        queue = self.queues.get(job.spec.cluster)
        attempt = job.attempt
        if queue is None:
            text = f"the cluster {job.spec.cluster} is not known any more"
            for rank in range(request.process_count):
                ending = Ending(cause="lost", text=text)
                self.report(ProcessEnded(job.id, attempt.number, rank, ending))
            return
        snapshots = tuple(filter(None, (job.spec.snapshot, job.spec.keep)))
        queue.want(
            Handover(
                self._attempt(job, request, again),
                message=lambda root: message(self.dialect, self.engine_id, job, request, root),
                words=lambda name, root, tasks, at_once: self.dialect.submit_words(
                    job, name, root, tasks, at_once
                ),
                snapshots=snapshots,
                batch=job.spec.batch,
                group=group_of(self.dialect, job, request),
                at_once=queueing(job).at_once,
                pack=pack_of(job),
                follows=None if attempt.follows else (),
            )
        )

    def _attempt(self, job: Job, request: Request, again: bool) -> Attempt:
        """As far as it is known before anybody was asked: an earlier Engine may have sent it."""
        assert job.attempt is not None
        count = request.process_count
        place = Place.UNANSWERED if again else Place.NOT_SENT
        return Attempt(
            key=handover_key(self.engine_id, job),
            job=job.id,
            number=job.attempt.number,
            count=count,
            title=self.dialect.title,
            kills_at_once=self.dialect.kills_at_once,
            grace_s=job.spec.grace_s,
            place=Place.CLAIMED if _runs(job) else place,
            started=frozenset(range(count)) if _runs(job) else frozenset(),
            ended=frozenset(job.attempt.endings),
            stop=job.stop_asked,
            # The queue cannot have known it, nor forgotten it, before.
            known_at=job.submitted,
        )

    def stop(self, job: Job, now: bool = False) -> None:
        if queue := self.queues.get(job.spec.cluster):
            queue.stop(handover_key(self.engine_id, job), now)

    def recall(self, job: Job) -> None:
        """Nothing is sent ahead to a queue."""

    def conclude(self, job: Job) -> None:
        if queue := self.queues.get(job.spec.cluster):
            queue.conclude(handover_key(self.engine_id, job))

    async def clear_error(self, job: Job) -> bool:
        """Have the queue start a job after all that it set aside; False for any other job."""
        queue = self.queues.get(job.spec.cluster)
        if queue is None or job.attempt is None:
            return False
        handover = queue.wanted.get(handover_key(self.engine_id, job))
        if handover is None or not handover.attempt.in_error:
            return False
        link = await queue.driver.reach(timeout_s=20.0, patient=False)
        try:
            await queue.commands.clear(link, [handover.attempt.id])
        except QueueSilent as silent:
            raise Impossible(f"{self.dialect.title} does not start it: {silent}") from None
        queue.watcher.soon()
        return True

    def standing(self, job: Job) -> QueueStanding:
        """Where a job that waits stands in its queue, as far as that is known."""
        queue = self.queues.get(job.spec.cluster)
        if queue is None or job.attempt is None or job.state.final:
            return {}
        handover = queue.wanted.get(handover_key(self.engine_id, job))
        return handover.attempt.standing() if handover else {}

    # --- looking into a job: its files are seen from the access node --------------------------

    async def execute(self, job: Job, rank: int, argv: list[str]) -> AsyncIterator[Said]:
        """Run a command in the job's allocation, in the folder of one of its processes."""
        link = await self.machines.link_to(job, rank)
        queue = self.queues[job.spec.cluster]
        handover = queue.wanted.get(handover_key(self.engine_id, job))
        if not handover or not handover.attempt.id or job.attempt is None or job.state.final:
            raise NotFound(
                f"job {job.id} does not run now, so nothing can run beside it",
                hint=f"tow ls {job.id} and tow pull {job.id} show its files",
            )
        key = key_of(self.engine_id, job.id, job.attempt, rank)
        number = await queue.commands.beside_number(link, handover.attempt.id)
        node = job.attempt.nodes.get(rank, "") if len(job.attempt.placement) > 1 else ""
        request = parse_request(job.spec.request)
        beside = self.dialect.beside_words(number, request, rank, node)
        handed = beside is None
        async for item in run_in_job(link, key, [*(beside or ()), *argv], handed):
            yield item

    # --- what it could do --------------------------------------------------------------------

    async def check_possible(self, cluster: str, wish: Queueing) -> str:
        """What the queue says to such a job; Impossible if it could never run there."""
        return await asking.check_possible(self.queues[cluster], wish)

    def queue_at(self, cluster: str) -> "AskedQueue":
        """What can be asked of the queue of a cluster."""
        return AskedQueue(self.queues[cluster], self.dialect)


class AskedQueue:
    """The queue of a cluster, as far as somebody wants to know of it."""

    def __init__(self, queue: Queue, dialect: Dialect) -> None:
        self._queue = queue
        self.title = dialect.title
        self.silent_hint = dialect.silent_hint

    async def nodes(self) -> list[QueueNode]:
        return await asking.list_nodes(self._queue)

    async def about(self) -> tuple[str, list[QueueNode]]:
        return await asking.about(self._queue)
