"""Slurm's dialect: how sbatch, squeue, sacct, scontrol and srun are asked, and read. Pure."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime

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
from towline.backends.slurm import verdicts
from towline.backends.slurm.fitting import could_ever_run
from towline.backends.slurm.instead import instead, is_about_accounts
from towline.backends.slurm.options import (
    Component,
    check_unit,
    checked_signal,
    components,
    followed,
    option_names,
    sbatch_options,
)
from towline.model.job import Job, Queueing
from towline.model.odd_text import original
from towline.model.request import Request
from towline.probes import slurm as reading
from towline.probes import slurm_nodes, slurm_places
from towline.probes.nodes import QueueNode

#: How the comments of our jobs begin.
MARK = "towline:"


class SlurmDialect:
    """See `Dialect` for what each method is for."""

    kind = "slurm"
    title = "Slurm"
    submit_command = "sbatch"
    silent_hint = "is it the cluster's access node, and does `sinfo` answer there?"
    first_task = 0
    kills_at_once = False
    takes_environment = True

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
        return sbatch_options(request, time_s, configured, given)

    def check_time(self, typed: str) -> None:
        check_unit(typed)

    def checked_signal(self, text: str) -> str:
        return checked_signal(text)

    def shown_words(self, title: str, queue: Queueing) -> Words:
        """Without what only Towline needs."""
        found = ["sbatch", f"--job-name={_job_name(title)}"]
        if queue.requeue or queue.on_timeout:
            found.append("--requeue")
        if queue.signal:
            found.append(f"--signal={queue.signal}")
        return [*found, *_options(queue)]

    # --- submitting --------------------------------------------------------------------------

    def submit_words(
        self, job: Job, name: str, root: str, tasks: Iterable[int] = (), at_once: int = 0
    ) -> Words:
        assert job.spec.queue is not None
        queue, numbers = job.spec.queue, reading.spans(tasks)
        several = numbers or job.spec.pack
        common = [
            f"--job-name={_job_name(job.spec.batch if several else job.spec.title)}",
            f"--comment={MARK}{name}",
            f"--chdir={root}/handed/{name}",
            "--output=slurm%a.out" if numbers else "--output=slurm.out",
            "--open-mode=append",
            "--requeue" if queue.requeue or queue.on_timeout else "--no-requeue",
        ]
        if queue.signal:
            # The script of a single process becomes what runs the command; steps get it themselves.
            single = job.attempt is None or len(job.attempt.placement) == 1
            common.append(f"--signal={'B:' if single else ''}{queue.signal}")
        if numbers:
            common.append(f"--array={numbers}" + (f"%{at_once}" if at_once else ""))
        if job.spec.begin:
            # As seconds since 1970, whatever time it is to the access node.
            common.append(f"--begin=uts{math.ceil(job.spec.begin)}")
        found = ["sbatch", "--parsable", *common, *_options(queue)]
        return [*found, f"{root}/handed/{name}/script", root, name]

    def following(self, words: Words, numbers: Iterable[str]) -> Words:
        return followed(words, numbers)

    def knows(self, site: Site) -> bool:
        return True

    def fit(self, words: Words, site: Site) -> Words:
        return words

    def ticket_in(self, answer: Answer) -> str:
        return reading.read_ticket(answer["out"])

    def read_ticket(self, text: str) -> str:
        return reading.read_ticket(text)

    def refusal(self, answer: Answer, is_array: bool) -> Refusal:
        error = answer["err"]
        if answer["code"] == NOT_FOUND:
            return Refusal.MISSING
        if reading.is_full(error):
            return Refusal.FULL
        if reading.is_passing(error):
            return Refusal.PASSING
        no_arrays = is_array and "array" in error.lower()
        return Refusal.NO_ARRAYS if no_arrays else Refusal.WRONG

    def complaint(self, error: str) -> str:
        return reading.complaint(error)

    def parts(self, request: Request, queue: Queueing) -> list[dict[str, int]]:
        return [
            {"first": part.first, "count": part.count, "cpus": _cpus(queue.options, index, part)}
            for index, part in enumerate(components(request, {}))
        ]

    # --- watching ----------------------------------------------------------------------------

    def list_words(self, user: str) -> Words:
        return reading.queue_words(user)

    def read_list(self, text: str) -> list[ListedEntry]:
        return list(map(listed_entry, reading.read_queue(text)))

    def recall_words(self, numbers: Iterable[str]) -> Words | None:
        return reading.account_words(numbers)

    def read_recalled(self, text: str) -> list[ListedEntry]:
        return list(map(listed_entry, reading.read_accounts(text)))

    def has_accounts(self, answer: Answer) -> bool:
        said = answer["err"] + answer["out"]
        return not (answer["code"] == NOT_FOUND or reading.has_no_accounting(said))

    def vanished(self, claimed: bool, stopped: bool, now: float) -> Verdict | None:
        """A controller that was killed may have forgotten it."""
        return None

    def explain_words(self, numbers: Iterable[str]) -> Words | None:
        return None

    def read_explained(self, text: str) -> dict[str, str]:
        return {}

    def check_words(self, text: str) -> Words | None:
        return None

    def read_checked(self, text: str) -> dict[str, str]:
        return {}

    def detail_words(self, listed: ListedEntry) -> Words | None:
        """Only scontrol tells the exit code of a job that the accounts have not heard of."""
        if listed.own.exit_code or listed.own.state == "CANCELLED":
            return None
        return reading.detail_words(listed.id)

    def read_detail(self, text: str, listed: ListedEntry) -> ListedEntry:
        told = (one for one in reading.read_details(text) if one.state == listed.own.state)
        return next(map(listed_entry, told), listed)

    def pending_words(self) -> Words | None:
        return slurm_places.pending_words()

    def read_places(self, text: str, ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        pending = slurm_places.read_pending(text)
        return {number: slurm_places.place_of(number, pending) for number in ids}

    def why_taken_back(self, accounts: str, number: str, node_is_down: bool) -> str:
        return verdicts.why_taken_back(reading.read_all_states(accounts, number), node_is_down)

    def verdict(self, listed: ListedEntry, said: str, claimed: bool, now: float) -> Verdict:
        return verdicts.verdict(listed.own, said, claimed, now)

    # --- changing ----------------------------------------------------------------------------

    def cancel_words(self, ids: Iterable[str]) -> Words:
        return ["scancel", *reading.joined(ids)]

    def clear_words(self, ids: Iterable[str]) -> Words | None:
        return None

    def was_cleared(self, answer: Answer) -> bool:
        return False

    def throttle_words(self, number: str, at_once: int) -> Words | None:
        whole = number.partition("_")[0]
        return ["scontrol", "update", f"JobId={whole}", f"ArrayTaskThrottle={at_once}"]

    # --- asking ------------------------------------------------------------------------------

    def version_words(self) -> Words:
        return ["sbatch", "--version"]

    def read_version(self, text: str) -> str:
        return text.strip()

    def site_words(self) -> Words:
        return reading.config_words()

    def read_site(self, text: str) -> Site:
        site = reading.read_site(text)
        return Site(site.longest, site.memory_s, site.booted, uptime_s(site))

    def node_words(self) -> Words:
        return slurm_nodes.node_words()

    def read_nodes(self, text: str) -> list[QueueNode]:
        return slurm_nodes.read_nodes(text)

    def test_words(self, queue: Queueing, site: Site) -> Words | None:
        """sbatch cannot test heterogeneous jobs."""
        if len(queue.options) != 1:
            return None
        return ["sbatch", "--test-only", *queue.options[0], "--wrap=true"]

    def read_test(self, answer: Answer) -> tuple[Test, str]:
        error = answer["err"]
        if answer["code"] == 0:
            return Test.YES, reading.expected(error) if error else ""
        if reading.is_passing(error) or reading.is_full(error):
            return Test.UNKNOWN, reading.expected(error)
        return Test.NOT_NOW if reading.is_not_now(error) else Test.NO, reading.complaint(error)

    def could_ever_run(self, queue: Queueing, nodes: list[QueueNode]) -> bool:
        return could_ever_run(queue.options[0], nodes)

    def account_words(self, user: str, refused: Answer) -> Words | None:
        return reading.association_words(user) if is_about_accounts(refused["err"]) else None

    def instead(self, answer: Answer, nodes: list[QueueNode], accounts: str) -> str:
        return instead(answer["err"], nodes, accounts) or "-o NAME=VALUE sets options of sbatch"

    # --- beside a job ------------------------------------------------------------------------

    def number_words(self, number: str) -> Words | None:
        """srun knows the tasks of arrays only by numbers of their own."""
        return reading.detail_words(number) if "_" in number else None

    def read_number(self, text: str) -> str:
        return reading.read_plain_number(text)

    def beside_words(self, number: str, request: Request, rank: int, node: str) -> Words | None:
        found = ["srun", f"--jobid={number}", "--overlap", "--ntasks=1", "--nodes=1"]
        parts = components(request, {})
        inside = [i for i, part in enumerate(parts) if part.first <= rank < part.first + part.count]
        if len(parts) > 1 and inside:
            found.append(f"--het-group={inside[0]}")
        if node:
            found.append(f"--nodelist={node}")
        return [*found, "--export=ALL"]


def listed_entry(one: reading.SlurmEntry) -> ListedEntry:
    """The same in terms that all queues share."""
    waits = one.state in reading.WAITING
    phase = Phase.ENDED if one.state in reading.ENDED else Phase.RUNNING
    phase = Phase.REFUSED if verdicts.was_refused(one) else phase
    return ListedEntry(
        one.id,
        Phase.WAITING if waits else phase,
        _name(one),
        reading.why_waiting(one) if waits else "",
        one.reason,
        one.start_at(),
        one.nodes,
        one.partition,
        one.account,
        one.time_limit,
        never=waits and verdicts.can_never(one),
        own=one,
    )


def _name(one: reading.SlurmEntry) -> str:
    """By its comment, or by its folder: some sites write comments of their own."""
    name = one.comment.removeprefix(MARK)
    if name == one.comment:
        name = one.folder.rpartition("/handed/")[2]
    _, task, index = one.id.partition("_")
    return name + task + index if name else ""


def uptime_s(site: reading.SlurmSite) -> float:
    """For how long the controller has been up; for ever where it does not say."""
    try:
        up = datetime.fromisoformat(site.as_of) - datetime.fromisoformat(site.booted)
    except ValueError:
        return math.inf
    return up.total_seconds()


def _job_name(title: str) -> str:
    return "".join(c if c.isprintable() else " " for c in original(title)) or "tow"


def _options(queue: Queueing) -> Words:
    """Parts of a heterogeneous job have a colon between them."""
    found: list[str] = []
    for index, options in enumerate(queue.options):
        found += [*([":"] if index else []), *options]
    return found


def _cpus(submit: tuple[tuple[str, ...], ...], index: int, part: Component) -> int:
    """As sbatch was told: srun does not take it over by itself."""
    options = submit[index] if index < len(submit) else ()
    given = [word.partition("=")[2] for word in options if word.startswith("--cpus-per-task=")]
    return int(given[-1]) if given and given[-1].isdigit() else max(1, int(part.need.cpus))
