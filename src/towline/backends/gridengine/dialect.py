"""Grid Engine's dialect: how qsub, qstat, qacct, qhost and qconf are asked, and read. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from towline.backends.gridengine import fitting, verdicts
from towline.backends.gridengine.options import (
    begin_word,
    followed,
    in_local_time,
    option_names,
    qsub_options,
)
from towline.backends.queue.dialect import (
    NOT_FOUND,
    Answer,
    ListedEntry,
    Phase,
    Refusal,
    Site,
    Test,
    Value,
    Verdict,
    Words,
)
from towline.errors import UsageError
from towline.model.job import Job, Queueing
from towline.model.odd_text import original
from towline.model.request import Request
from towline.probes import gridengine as reading
from towline.probes import gridengine_site
from towline.probes.nodes import QueueNode

#: Most jobs whose reasons are asked for one by one.
_FEW = 8
_LONGEST_TITLE = 40

#: In its refusal of a parallel environment that there is none of.
_NO_ENVIRONMENT = "the requested parallel environment"


class GridEngineDialect:
    """See `Dialect` for what each method is for."""

    kind = "gridengine"
    title = "Grid Engine"
    submit_command = "qsub"
    silent_hint = (
        "is it the head node, and does `qstat` answer there? What the commands need first goes into"
        " the configuration: setup_login = '. /opt/sge/default/common/settings.sh'"
    )
    first_task = 1
    kills_at_once = True
    takes_environment = False

    # --- accepting ---------------------------------------------------------------------------

    def check_options(self, options: Mapping[str, Value]) -> None:
        option_names(options)

    def options(
        self,
        request: Request,
        time_s: float,
        configured: Mapping[str, Value],
        given: Mapping[str, Value],
    ) -> list[Words]:
        return qsub_options(request, time_s, configured, given)

    def check_time(self, typed: str) -> None:
        """A bare number is seconds, to qsub as well."""

    def checked_signal(self, text: str) -> str:
        raise UsageError(
            "Grid Engine sends no signal before the end of a job's time",
            hint="at its --time limit a job gets TERM, and time to end by itself",
        )

    def shown_words(self, title: str, queue: Queueing) -> Words:
        found = ["qsub", "-N", _job_name(title), *(["-r", "y"] if queue.requeue else [])]
        return [*found, *(word for words in queue.options for word in words)]

    # --- submitting --------------------------------------------------------------------------

    def submit_words(
        self, job: Job, name: str, root: str, tasks: Iterable[int] = (), at_once: int = 0
    ) -> Words:
        assert job.spec.queue is not None
        queue, numbers = job.spec.queue, sorted(tasks)
        title = _job_name(job.spec.batch if numbers or job.spec.pack else job.spec.title)
        # A user's or site's own defaults may say otherwise: all that matters is said.
        found = ["qsub", "-terse", "-b", "n", "-sync", "n", "-now", "n", "-S", "/bin/sh"]
        found += ["-N", f"{title}{reading.MARK}{name}", "-A", f"{reading.ACCOUNT}{name}"]
        found += ["-wd", f"{root}/handed/{name}", "-j", "y"]
        found += ["-o", "grid$TASK_ID.out" if numbers else "grid.out"]
        found += ["-r", "y" if queue.requeue else "n"]
        if numbers:
            # It takes one range: whatever else is in it has a claim or a wish to stop, and ends.
            found += ["-t", f"{numbers[0]}-{numbers[-1]}"]
            found += ["-tc", str(at_once)] if at_once else []
        found += ["-a", begin_word(job.spec.begin)] if job.spec.begin else []
        options = [word for words in queue.options for word in words]
        return [*found, *options, f"{root}/handed/{name}/script", root, name]

    def following(self, words: Words, numbers: Iterable[str]) -> Words:
        return followed(words, numbers)

    def knows(self, site: Site) -> bool:
        return site.own is not None

    def fit(self, words: Words, site: Site) -> Words:
        return in_local_time(fitting.fit(words, site.own))

    def read_ticket(self, text: str) -> str:
        return reading.read_ticket(text)

    def ticket_in(self, answer: Answer) -> str:
        """Also of one that it took with a warning, which it calls an error."""
        return reading.read_ticket(answer["out"]) or reading.read_ticket(answer["err"])

    def refusal(self, answer: Answer, is_array: bool) -> Refusal:
        error = answer["err"]
        if answer["code"] == NOT_FOUND:
            return Refusal.MISSING
        if reading.is_full(error):
            return Refusal.FULL
        if reading.is_passing(error):
            return Refusal.PASSING
        no_arrays = is_array and "tasks" in error
        return Refusal.NO_ARRAYS if no_arrays else Refusal.WRONG

    def complaint(self, error: str) -> str:
        return reading.complaint(error)

    def parts(self, request: Request, queue: Queueing) -> list[dict[str, int]]:
        cpus = max((int(group.need.cpus) for group in request.groups), default=1)
        return [{"first": 0, "count": request.process_count, "cpus": max(1, cpus)}]

    # --- watching ----------------------------------------------------------------------------

    def list_words(self, user: str) -> Words:
        return reading.list_words(user)

    def read_list(self, text: str) -> list[ListedEntry]:
        return [one for listed in reading.read_list(text) for one in _entries(listed)]

    def recall_words(self, numbers: Iterable[str]) -> Words | None:
        return reading.account_words(numbers)

    def read_recalled(self, text: str) -> list[ListedEntry]:
        return [_recalled(one) for one in reading.read_accounts(text)]

    def has_accounts(self, answer: Answer) -> bool:
        return bool(answer["code"] != NOT_FOUND)

    def vanished(self, claimed: bool, stopped: bool, now: float) -> Verdict | None:
        return verdicts.vanished(claimed, stopped, now)

    def detail_words(self, listed: ListedEntry) -> Words | None:
        return None

    def read_detail(self, text: str, listed: ListedEntry) -> ListedEntry:
        return listed

    def pending_words(self) -> Words | None:
        """It has no order that says who is next."""
        return None

    def read_places(self, text: str, ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        return {}

    def explain_words(self, numbers: Iterable[str]) -> Words | None:
        return reading.why_words(numbers)

    def read_explained(self, text: str) -> dict[str, str]:
        """Number -> why, and number_task -> why it is in error."""
        found = {}
        for number, why in reading.read_whys(text).items():
            found[number] = reading.in_words(why.reasons)
            for task, error in why.errors.items():
                found[f"{number}_{task}"] = error
        return found

    def check_words(self, text: str) -> Words | None:
        """Where the site collects no reasons, each job is asked by itself."""
        silent = [number for number, why in reading.read_whys(text).items() if why.is_off]
        return reading.check_words(silent[:_FEW]) if silent else None

    def read_checked(self, text: str) -> dict[str, str]:
        told = reading.read_checks(text)
        return {number: reading.in_words(reasons) for number, reasons in told.items()}

    def why_taken_back(self, accounts: str, number: str, node_is_down: bool) -> str:
        told = [one for one in reading.read_accounts(accounts) if one.id == number]
        if node_is_down:
            return "its host does not answer"
        return told[-1].failure if told else ""

    def verdict(self, listed: ListedEntry, said: str, claimed: bool, now: float) -> Verdict:
        return verdicts.verdict(listed.own, said, claimed, now)

    # --- changing ----------------------------------------------------------------------------

    def cancel_words(self, ids: Iterable[str]) -> Words:
        return ["qdel", *reading.numbers(ids)]

    def clear_words(self, ids: Iterable[str]) -> Words | None:
        return ["qmod", "-cj", *reading.numbers(ids)]

    def was_cleared(self, answer: Answer) -> bool:
        """Its exit code is 1 when it did."""
        return "cleared error state" in answer["out"]

    def throttle_words(self, number: str, at_once: int) -> Words | None:
        return ["qalter", "-tc", str(at_once), number.partition("_")[0]]

    # --- asking ------------------------------------------------------------------------------

    def version_words(self) -> Words:
        return ["qstat", "-help"]

    def read_version(self, text: str) -> str:
        return next(iter(text.strip().splitlines()), "")

    def site_words(self) -> Words:
        return gridengine_site.site_words()

    def read_site(self, text: str) -> Site:
        told = gridengine_site.read_site(text)
        return Site(longest=(told.longest or None) if told else None, own=told)

    def node_words(self) -> Words:
        return gridengine_site.node_words()

    def read_nodes(self, text: str) -> list[QueueNode]:
        return gridengine_site.read_nodes(text)

    def test_words(self, queue: Queueing, site: Site) -> Words | None:
        options = [word for words in queue.options for word in words]
        if site.own is None and any(word.startswith("--") for word in options):
            return None
        words = ["qsub", "-w", "v", "-N", "tow", *options, "-b", "y", "/bin/true"]
        return fitting.verifiable(self.fit(words, site), site.own)

    def read_test(self, answer: Answer) -> tuple[Test, str]:
        error = answer["err"] + answer["out"]
        if answer["code"] == 0:
            return Test.YES, ""
        if reading.is_passing(error) or reading.is_full(error):
            return Test.UNKNOWN, ""
        text = reading.complaint(error)
        not_now = "temporarily not available" in error or "is disabled" in error
        return Test.NOT_NOW if not_now else Test.NO, text

    def could_ever_run(self, queue: Queueing, nodes: list[QueueNode]) -> bool:
        return True

    def account_words(self, user: str, refused: Answer) -> Words | None:
        return ["qconf", "-spl"] if _NO_ENVIRONMENT in refused["err"] else None

    def instead(self, answer: Answer, nodes: list[QueueNode], accounts: str) -> str:
        if "unknown queue" in answer["err"] and nodes:
            names = dict.fromkeys(queue for node in nodes for queue in node.partitions)
            return f"its queues are {', '.join(names)}"
        if _NO_ENVIRONMENT in answer["err"] and accounts.split():
            return f"its parallel environments are {', '.join(accounts.split())}"
        return "-o NAME=VALUE sets options of qsub"

    # --- beside a job ------------------------------------------------------------------------

    def number_words(self, number: str) -> Words | None:
        return None

    def read_number(self, text: str) -> str:
        return ""

    def beside_words(self, number: str, request: Request, rank: int, node: str) -> Words | None:
        return None


def _entries(one: reading.Listed) -> Iterator[ListedEntry]:
    """The same in terms that all queues share, task by task; of our own jobs only."""
    name = reading.mark_of(one.name)
    if not name:
        return
    phase = Phase.WAITING if one.is_waiting else Phase.RUNNING
    word = "Eqw" if one.has_error else one.state if one.is_waiting else ""
    why = "held" if "h" in one.state else "in Grid Engine's queue" if one.is_waiting else ""
    queue = one.queue.partition("@")[0]
    for task in one.tasks or (0,):
        yield ListedEntry(
            f"{one.number}_{task}" if task else one.number,
            phase,
            f"{name}_{task}" if task else name,
            why=why,
            word=word,
            nodes=one.host,
            partition=queue,
            has_error=one.has_error,
            suspended=one.is_suspended,
        )


def _recalled(one: reading.JobAccount) -> ListedEntry:
    name = one.account.removeprefix(reading.ACCOUNT)
    name = "" if name == one.account else f"{name}_{one.task}" if one.task else name
    phase = Phase.RUNNING if one.failed == verdicts.TAKEN_BACK else Phase.ENDED
    return ListedEntry(one.id, phase, name, nodes=one.host, own=one)


def _job_name(title: str) -> str:
    """As Grid Engine takes names: no digit first, and few kinds of signs."""
    text = original(title).rpartition("/")[2] if " " not in title else original(title)
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in text)
    kept = kept.strip("_")[:_LONGEST_TITLE] or "job"
    return f"j{kept}" if kept[0].isdigit() else kept
