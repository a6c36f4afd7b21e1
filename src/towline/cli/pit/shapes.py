"""What `pit` shows, as text in the ancestor's shapes: tables, labelled lines, values. Pure."""

from __future__ import annotations

from towline.cli.terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

#: A job's state here -> the ancestor's three letters.
LETTERS = {
    "new": "NEW",
    "staging": "PRE",
    "waiting": "WAI",
    "queued": "WAI",
    "starting": "STA",
    "running": "RUN",
    "stopping": "STO",
}
#: However a job ended.
OVER = "FIN"
#: What stands before the last column of the tables, which takes what is left of the line.
_BEFORE_STATUS = 64
_BEFORE_JOBS = 76
_LAST_COLUMN = 30
#: The word `RESOURCE` and a blank.
_NARROWEST = 9
_DAY_S = 86400
_MOST_DAYS = 99
#: Labels of a user are laid out as if the longest were always there.
_LONGEST_OF_USERS = "Is administrator"


def letters(state: str) -> str:
    return LETTERS.get(state, OVER)


def status_table(status: Mapping[str, Any], now: float, columns: int | None) -> list[str]:
    """The report of `pit status`; `columns` is the terminal's width, None where there is none."""
    width = _last_column(columns, _BEFORE_STATUS)
    head = ("JOB", "S", "SINCE", "UC%", "UM%", "USER", "TITLE", "RESOURCE")
    lines = [_row(head, 12, width)]
    for caption in ("Running", "Waiting", "Done"):
        rows = [_status_row(job, now, width) for job in status.get(caption.lower(), ())]
        lines += [f"{caption}:", *rows] if rows else []
    return lines


def jobs_table(jobs: Iterable[Mapping[str, Any]], columns: int | None) -> list[str]:
    """The list of `pit show jobs`."""
    width = _last_column(columns, _BEFORE_JOBS)
    head = ("JOB", "S", "DATE", "UC%", "UM%", "USER", "TITLE", "RESOURCE")
    found = [_job_row(job, iso_time(job["since"]), 24, width) for job in jobs]
    return [_row(head, 24, width), *found]


def _status_row(job: Mapping[str, Any], now: float, width: int) -> str:
    return _job_row(job, since(now - job["since"]), 12, width)


def _job_row(job: Mapping[str, Any], when: str, when_width: int, width: int) -> str:
    values = (
        str(job["id"]),
        letters(job["state"]),
        when,
        str(int(job.get("util_compute") or 0)),
        str(int(job.get("util_memory") or 0)),
        job["owner"],
        job["title"],
        allocation(job.get("allocation") or ()) or job["request"],
    )
    return _row(values, when_width, width)


def _row(values: Sequence[str], when: int, width: int) -> str:
    job, state, since_, compute, memory, user, title, resource = (
        printable(value) for value in values
    )
    return (
        f"{job[:6]:>6} {state[:3]:>3} {since_[:when]:<{when}} {compute[:3]:>3} {memory[:3]:>3} "
        f"{user[:10]:<10} {title[:20]:<20} {resource[:width]:<{width}}"
    )


def _last_column(columns: int | None, before: int) -> int:
    left = (columns or 0) - before
    return left if left >= _NARROWEST else _LAST_COLUMN


def since(seconds: float) -> str:
    """How long ago: `04d 21:05:50`, beyond 99 days only those."""
    left = max(0, int(seconds))
    days, left = divmod(left, _DAY_S)
    if days > _MOST_DAYS:
        return f"{days}d"
    return f"{days:02}d {left // 3600:02}:{left // 60 % 60:02}:{left % 60:02}"


def allocation(processes: Iterable[Sequence[Any]]) -> str:
    """Where a job is: `n0[cuda 0,2-3] + n1[]`; processes on one node count as one."""
    nodes: dict[str, set[int]] = {}
    for node, gpus in processes:
        nodes.setdefault(node, set()).update(gpus)
    return " + ".join(f"{node}[{_cuda(sorted(gpus))}]" for node, gpus in nodes.items())


def _cuda(indices: list[int]) -> str:
    runs: list[list[int]] = []
    for index in indices:
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"cuda {','.join(shown)}" if shown else ""


def iso_time(at: float) -> str:
    """As JavaScript writes a time: `2019-02-28T22:01:28.000Z`."""
    import time

    whole, thousandths = divmod(int(at * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{thousandths:03}Z"


def labelled(rows: Iterable[tuple[str, str | None]], longest: str = "") -> list[str]:
    """`Label:` and value, all values in one column; what has no value is left out."""
    shown = [(label, value) for label, value in rows if value is not None]
    width = max([len(longest), *(len(label) for label, _ in shown)]) + 2
    return [f"{label + ':':<{width}}{_lines(value)}" for label, value in shown]


def _lines(value: str) -> str:
    return "\n".join(map(printable, value.split("\n")))


def _words(names: Sequence[str]) -> str | None:
    return " ".join(names) if names else None


def user_lines(account: Mapping[str, Any]) -> list[str]:
    state = account.get("state", "active")
    return labelled(
        [
            ("Username", account["name"]),
            ("Full name", account.get("fullname") or None),
            ("E-Mail address", account.get("email") or None),
            ("Groups", _words(account.get("groups") or [])),
            ("Auto share", _words(account.get("autoshare") or [])),
            ("State", None if state == "active" else state),
            ("Is administrator", "yes" if account.get("administrator") else None),
        ],
        _LONGEST_OF_USERS,
    )


def node_lines(node: Mapping[str, Any]) -> list[str]:
    resources = [f"\n  {_resource(one)}" for one in node.get("resources") or ()]
    return labelled(
        [
            ("Node name", node["name"]),
            ("State", str(node["state"]).upper()),
            ("Resources", "".join(resources)),
        ]
    )


def data_line(node: Mapping[str, Any]) -> str:
    """Where jobs on a node find the data of the team, or why they do not."""
    found = f"none ({node['data_problem']})" if node["data_problem"] else str(node["data"])
    return f"Data:      {printable(found)}"


def wall_lines(node: Mapping[str, Any]) -> list[str]:
    """What is between the jobs of a node, and what that leaves open."""
    if node.get("isolation") != "walls":
        return ["Walls:     none, jobs share an account and nothing keeps them apart"]
    if node.get("walls"):
        return [f"Walls:     broken, no job starts: {printable(node['walls'])}"]
    return ["Walls:     yes", *(f"  open: {printable(text)}" for text in node.get("open") or ())]


def _resource(resource: Mapping[str, Any]) -> str:
    alias = f' aka "{resource["alias"]}"' if resource.get("alias") else ""
    groups = _words(resource.get("groups") or [])
    rights = f" - Groups: {groups}" if groups else ""
    index = resource["index"]
    return f'{index}: "{resource["name"]}"{alias} (cuda {index}){rights}'


def group_lines(group: Mapping[str, Any]) -> list[str]:
    return labelled(
        [
            ("Name", group["name"]),
            ("Title", group.get("title") or None),
            ("Members", _words(group.get("members") or [])),
        ]
    )


def alias_lines(alias: Mapping[str, Any]) -> list[str]:
    return labelled([("Alias", alias["name"]), ("For", alias["resource"])])


def job_lines(job: Mapping[str, Any]) -> list[str]:
    """Of a job that one may not read, less is known, and so shown."""
    state = letters(job["state"])
    if state == "WAI" and job.get("position"):
        state += f" (position {job['position']})"
    error = job.get("error")
    place = allocation(job.get("allocation") or ())
    return labelled(
        [
            ("Job number", str(job["id"])),
            ("Continued job", str(job["continued"]) if job.get("continued") else None),
            ("Title", job["title"]),
            ("Owner", job["owner"]),
            ("Groups", _words(job.get("groups") or [])),
            ("Error", f'"{error}"' if error else None),
            ("Provisioning", job.get("origin") or None),
            ("Resources", place or job["request"]),
            ("Util. GPU", _percent(job, "util_compute")),
            ("Util. memory", _percent(job, "util_memory")),
            ("State", state),
            ("Processes", _processes(job.get("processes") or ())),
            ("State changes", _changes(job.get("changes") or ())),
        ]
    )


def _percent(job: Mapping[str, Any], name: str) -> str | None:
    """Only of what runs on GPUs."""
    on_gpus = any(gpus for _, gpus in job.get("allocation") or ())
    return f"{int(job.get(name) or 0)} %" if on_gpus else None


def _processes(processes: Sequence[Mapping[str, Any]]) -> str | None:
    lines = []
    for one in processes:
        code = one.get("exit_code")
        if code is None and one.get("signal") is not None:
            code = 128 + one["signal"]
        said = f" - {one['result']}" if one.get("result") else ""
        shown = "?" if code is None else code
        lines.append(f"\n  [{one['group']}, {one['process']}]: Status code: {shown}{said}")
    return "".join(lines) or None


def _changes(changes: Sequence[Mapping[str, Any]]) -> str | None:
    lines = []
    for one in changes:
        reason = f" - {one['reason']}" if one.get("reason") else ""
        lines.append(f"\n  {letters(one['state'])}: {iso_time(one['at'])}{reason}")
    return "".join(lines) or None


def raw_value(value: Any) -> str:
    """A property as `pit get` prints it: as JavaScript would."""
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[ {', '.join(map(_inside, value))} ]" if value else "[]"
    if isinstance(value, dict):
        pairs = ", ".join(f"{name}: {_inside(one)}" for name, one in value.items())
        return f"{{ {pairs} }}" if value else "{}"
    return _lines(str(value))


def _inside(value: Any) -> str:
    if isinstance(value, str):
        return "'" + printable(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
    return raw_value(value)


def preamble(number: int, remote: str, commit: str, lines: int, request: str) -> list[str]:
    """What `pit run` says of the job it submitted."""
    return [
        f"Job number: {number}",
        f"Remote:     {printable(remote)}",
        f"Hash:       {commit}",
        f"Diff LoC:   {lines}",
        f'Resources:  "{printable(request)}"',
    ]


def listing(path: str, found: Mapping[str, Any]) -> list[str]:
    """`D name` and `F name`; of a file, only itself."""
    if found["kind"] == "file":
        return [f"F {printable(path)}"]
    entries = found["entries"]
    folders = sorted(one["name"] for one in entries if one["kind"] == "dir")
    files = sorted(one["name"] for one in entries if one["kind"] == "file")
    return [f"D {printable(name)}" for name in folders] + [f"F {printable(n)}" for n in files]
