"""What a user asks for -> what the Engine accepts: defaults filled in, everything checked."""

import os
import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from towline.backends.registry import KINDS, dialect_of
from towline.config.settings import (
    Cluster,
    Config,
    MachinesCluster,
    QueueCluster,
    ServerCluster,
    SnapshotSettings,
)
from towline.errors import UsageError
from towline.model.grammar import combine, format_request
from towline.model.job import UMASK, JobSpec, Queueing, Sandbox
from towline.model.names import ANY, FAILED, OK
from towline.model.odd_text import keepable
from towline.model.request import Packing, Request, check_pack, share_of
from towline.model.service import services_from
from towline.model.units import parse_duration_s
from towline.snapshot.folder import only_these
from towline.snapshot.patterns import Patterns
from towline.workspace.base import Frozen, Places

#: A variable of the job that names a folder.
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
#: What already means a job, or several.
_TAKEN = re.compile(r"[0-9]+|[0-9]+-[0-9]+|last|all")
_LONGEST_TITLE = 60
_LONGEST_ORIGIN = 500
#: The year 9999: no later time can be shown.
_LAST_MOMENT = 253_370_764_800.0
_LONGEST_NAME = 200
#: The kernel's own limit for a command and its environment, wherever it runs.
_MOST_WORDS = 6_000_000


class JobAsk(Struct, forbid_unknown_fields=True):
    """One submission, as typed: values are text and not yet checked."""

    argv: list[str]
    cwd: str
    environ: dict[str, str] = field(default_factory=dict)
    #: The environment was not sent along, and will be once it is asked for.
    environ_later: bool = False
    cluster: str | None = None
    request: str | None = None
    cpus: str | None = None
    mem: str | None = None
    gpus: str | None = None
    exclusive: bool = False
    title: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    time: str | None = None
    retries: str | int | None = None
    priority: str | int | None = None
    setup: str | None = None
    #: Patterns of what travels besides, and of what stays here.
    include: list[str] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)
    #: Paths that come home; none: all that the job makes or changes.
    back: list[str] = field(default_factory=list)
    results: bool = True
    in_place: bool = False
    #: A dirty tree is recorded as a branch, not beside the branches.
    branch: bool = False
    #: Job whose `keep` folder this one starts with.
    continued: int = 0
    #: Only these paths below the folder travel, ignored ones too; None: all that is not ignored.
    only: list[str] | None = None
    #: What `back` names comes home even where it did not change.
    whole: bool = False
    #: Its results are in `job_results/<name>`.
    name: str = ""
    #: The submitter's: what comes home gets no permissions that are in here.
    umask: int | None = None
    #: What it printed comes home as two files, also where that was nothing.
    empty_outputs: bool = False
    #: For clusters with a queue of their own: options for it by name, and what happens when the
    #: queue ends a job.
    options: dict[str, str] = field(default_factory=dict)
    requeue: bool = False
    signal: str | None = None
    on_timeout: str | None = None
    #: `tensorboard`, or shell text that serves on $PORT; and what TensorBoard is to show.
    services: list[str] = field(default_factory=list)
    logdir: str | None = None
    #: Jobs and batches, as people name them, that must have ended first: well, in whatever way, or
    #: not well.
    after: list[str] = field(default_factory=list)
    after_any: list[str] = field(default_factory=list)
    after_failed: list[str] = field(default_factory=list)
    #: Held until somebody lets it go; and not to begin before a time, in seconds since 1970.
    hold: bool = False
    begin: float = 0.0
    #: For a team's server, which knows no folder of ours: the snapshot that was sent before; and
    #: whether the job is not to be shared with the groups that the owner's jobs are shared with.
    frozen: Frozen | None = None
    private: bool = False
    #: The job is over as soon as one of its processes is.
    ends_together: bool = False
    #: Where the version in the folder comes from, in words.
    origin: str = ""
    #: It is walled in on its machine.
    sandbox: bool = False
    #: Of a batch: its lines share allocations, and what is asked for is of an allocation.
    pack: Packing | None = None

    def __repr__(self) -> str:
        return f"JobAsk({self.argv!r})"


def named_after(ask: JobAsk) -> tuple[tuple[str, str], ...]:
    """What must have ended first, as it was named, and how."""
    named = {OK: ask.after, ANY: ask.after_any, FAILED: ask.after_failed}
    return tuple((when, name) for when, names in named.items() for name in names)


def snapshot_settings(ask: JobAsk, config: Config) -> SnapshotSettings:
    """What of the folder travels: the configuration's patterns and this submission's."""
    base = config.snapshot
    settings = replace(
        base, include=[*base.include, *ask.include], exclude=[*base.exclude, *ask.exclude]
    )
    return settings if ask.only is None else only_these(settings, ask.only)


def checked_back(path: str) -> str:
    """A path that is to come home, as the machine will list it."""
    if variable := _VARIABLE.fullmatch(path):
        return variable[1]
    return keepable(os.path.normpath(path.strip("/")))


def outside_of(back: Iterable[str]) -> dict[str, str]:
    """Folders elsewhere on the machine that are to come home: `$OUTPUT_DIR`, by its name."""
    found = (_VARIABLE.fullmatch(path) for path in back)
    return {variable[1]: f"${variable[1]}" for variable in found if variable}


def check_included(patterns: list[str], paths: Iterable[str], folder: str) -> None:
    """Refuse a typed pattern that nothing of what travels matches: it was meant to."""
    for pattern in patterns:
        matching = Patterns([pattern])
        if pattern.startswith("!") or any(matching.match_below(path) for path in paths):
            continue
        raise UsageError(
            f"--include {pattern}: there is nothing of that name in {folder}",
            hint="a name without / is looked for at any depth, one with / from the top of what "
            "travels; `tow run --dry-run` shows what that is",
        )


def request_from(ask: JobAsk, config: Config) -> Request:
    text = ask.request
    shortcuts = ask.cpus or ask.mem or ask.gpus or ask.exclusive
    if text is None and not shortcuts:
        text = config.defaults.request or None
    return combine(text, ask.cpus, ask.mem, ask.gpus, ask.exclusive)


def spec_from(ask: JobAsk, places: Places, owner: str) -> JobSpec:
    """All but the snapshot, which takes longer and comes after every check."""
    check_words(ask.argv)
    check_size(ask.argv, ask.env, ask.environ)
    check_name(ask.name)
    check_title(ask.title)
    config = places.config
    name, cluster = places.cluster(ask.cluster)
    if cluster.kind not in KINDS or isinstance(cluster, ServerCluster):
        raise UsageError(
            f"cluster {name!r} is a team's server, and you are not signed in to it",
            hint=f"tow clusters add {name} --server URL, then tow run -c {name}",
        )
    defaults = config.defaults
    setup = "\n".join(part for part in (cluster.setup, ask.setup or defaults.setup) if part)
    time_s = _limit_s(ask, config, cluster)
    request, pack = _packed(ask.pack, request_from(ask, config), cluster)
    return JobSpec(
        argv=tuple(keepable(word) for word in ask.argv),
        cluster=name,
        owner=owner,
        request=format_request(request),
        title=title_of((ask.title or "").strip() or " ".join(ask.argv)),
        folder=keepable(ask.cwd),
        env=variables_of(ask, defaults.env, cluster.env),
        setup=setup,
        time_s=time_s,
        grace_s=config.engine.grace_s,
        retries=_number("--retries", ask.retries, defaults.retries, 0, 1000),
        in_place=ask.in_place,
        links={**cluster.links, **outside_of(ask.back)},
        results=ask.results and not ask.in_place,
        back=tuple(map(checked_back, ask.back)),
        include=tuple(map(keepable, ask.include)),
        exclude=tuple(map(keepable, ask.exclude)),
        only=None if ask.only is None else tuple(map(keepable, ask.only)),
        whole=ask.whole,
        name=ask.name,
        umask=_number("umask", ask.umask, UMASK, 0, 0o777),
        empty_outputs=ask.empty_outputs,
        priority=_number("--priority", ask.priority, defaults.priority, -1000, 1000),
        queue=queueing_from(ask, cluster, request, time_s),
        pack=pack,
        sandbox=_walled(ask, cluster),
        services=services_from(ask.services, ask.logdir),
        hold=ask.hold,
        begin=_moment(ask.begin),
        ends_together=ask.ends_together,
        origin=_line_of(ask.origin, _LONGEST_ORIGIN),
    )


def _walled(ask: JobAsk, cluster: Cluster) -> Sandbox | None:
    """Whether a job is walled in, and what it sees of its machine besides."""
    if not isinstance(cluster, MachinesCluster):
        if ask.sandbox:
            raise UsageError(
                "--sandbox is for machines: a queue such as Slurm has walls of its own",
                hint="ask its administrators how it keeps jobs apart",
            )
        return None
    if not (ask.sandbox or cluster.sandbox):
        return None
    if ask.in_place:
        raise UsageError(
            "a job that is walled in cannot run in place: it has a folder of its own",
            hint="leave out --in-place, or --sandbox",
        )
    if outside_of(ask.back):
        raise UsageError(
            "a job that is walled in writes nothing outside of its folder, so nothing can come "
            "home from there",
            hint="leave out --back '$NAME'",
        )
    return Sandbox(tuple(map(keepable, cluster.sandbox_shows)))


def _limit_s(ask: JobAsk, config: Config, cluster: Cluster) -> float:
    """After how many seconds it is stopped; 0: never."""
    limit = ask.time if ask.time is not None else config.defaults.time
    if ask.time is not None and isinstance(cluster, QueueCluster):
        dialect_of(cluster.kind).check_time(ask.time)
    return parse_duration_s(limit) if limit else 0.0


def _packed(
    pack: Packing | None, request: Request, cluster: Cluster
) -> tuple[Request, Packing | None]:
    """What each job asks for, and how it shares an allocation. Where nobody gives out allocations,
    each asks for its part of one."""
    if pack is None:
        return request, None
    check_pack(pack)
    if request.process_count > 1:
        raise UsageError(
            f"a line of a pack is one process, and this asks for {request.process_count}",
            hint="what is asked for is of the allocation that lines share, e.g. --gpus 4",
        )
    if isinstance(cluster, QueueCluster):
        return request, pack
    return share_of(request, pack.parallel), None


def variables_of(ask: JobAsk, *defaults: dict[str, str]) -> dict[str, str]:
    """The variables of a job: what is typed wins over the cluster's, that over everybody's."""
    found: dict[str, str] = {}
    for some in (*defaults, checked_variables(ask.env)):
        found |= {name: keepable(value) for name, value in some.items()}
    return found


def queueing_from(
    ask: JobAsk, cluster: Cluster, request: Request, time_s: float
) -> Queueing | None:
    """How the job goes into its cluster's own queue; None where Towline itself has the queue."""
    if not isinstance(cluster, QueueCluster):
        given = {"-o": ask.options, "--requeue": ask.requeue, "--signal": ask.signal}
        given["--on-timeout"] = ask.on_timeout
        if wrong := [option for option, value in given.items() if value]:
            raise UsageError(
                f"{wrong[0]} is for clusters with a queue of their own, such as a Slurm",
                hint="leave it out, or choose such a cluster with -c",
            )
        return None
    dialect = dialect_of(cluster.kind)
    if ask.in_place:
        raise UsageError(
            f"--in-place runs in the folder itself, but a {dialect.title} runs jobs on its nodes",
            hint="use it on this machine: -c local",
        )
    if ask.on_timeout not in (None, "", "stop", "resubmit"):
        raise UsageError(f"--on-timeout is stop or resubmit, not {ask.on_timeout!r}")
    words = dialect.options(request, time_s, cluster.configured, ask.options)
    return Queueing(
        kind=cluster.kind,
        options=tuple(map(tuple, words)),
        requeue=ask.requeue,
        signal=dialect.checked_signal(ask.signal) if ask.signal else "",
        on_timeout="resubmit" if ask.on_timeout == "resubmit" else "",
    )


def check_words(argv: list[str]) -> None:
    if not argv or not argv[0]:
        raise UsageError("there is no command to run", hint="tow run COMMAND [ARGUMENTS]")
    if any("\0" in word for word in argv):
        raise UsageError("an argument contains a NUL character, which no program can be given")


def check_size(argv: list[str], *variables: dict[str, str]) -> None:
    """Refuse what no machine could start, before anything travels."""
    words = [*argv, *(text for some in variables for pair in some.items() for text in pair)]
    size = sum(map(len, words))
    if size > _MOST_WORDS:
        raise UsageError(
            f"the command and its variables take {size / 1e6:.1f} MB, and Linux starts no program"
            f" with more than {_MOST_WORDS / 1e6:.0f} MB of them",
            hint="write what is long into a file, and have the job read that",
        )


def check_name(name: str) -> None:
    """Names of results are names of files, in one folder."""
    odd = "/" in name or "\0" in name or name.startswith(".") or not name.isprintable()
    if name and (odd or len(name.encode(errors="replace")) > _LONGEST_NAME):
        raise UsageError(f"{name!r} cannot be the name of a job", hint="letters, digits and ._-")


def check_title(title: str | None) -> None:
    """A title is what a job can be named by: not what means other jobs already."""
    if title is not None and _TAKEN.fullmatch(title):
        raise UsageError(
            f"a job cannot be titled {title!r}, which means other jobs",
            hint="any title but a number, a range, `last` and `all`; a time limit is --time",
        )


def title_of(words: str) -> str:
    """One line that is not too long."""
    return _line_of(words, _LONGEST_TITLE)


def _line_of(words: str, longest: int) -> str:
    line = "".join(c if c.isprintable() else " " for c in keepable(words).lstrip("\0"))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def checked_variables(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise UsageError(f"{name!r} cannot be the name of a variable", hint="-e NAME=VALUE")
    return {name: keepable(value) for name, value in env.items()}


def _number(option: str, typed: Any, default: int, least: int, most: int) -> int:
    if typed is None:
        return default
    try:
        number = int(typed)
    except ValueError:
        raise UsageError(f"{option} takes a whole number, not {typed!r}") from None
    if not least <= number <= most:
        raise UsageError(f"{option} must be from {least} to {most}, not {number}")
    return number


def _moment(begin: float) -> float:
    if not 0 <= begin < _LAST_MOMENT:
        raise UsageError(f"nothing begins at {begin}", hint="seconds since 1970")
    return begin


def checked_folder(cwd: str) -> str:
    if not os.path.isabs(cwd) or not os.path.isdir(cwd):
        raise UsageError(
            f"the folder {cwd!r} does not exist", hint="submit from a folder that exists"
        )
    return cwd
