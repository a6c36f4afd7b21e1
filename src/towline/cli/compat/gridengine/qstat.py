"""`tow qstat`: what has not ended, in Grid Engine's columns."""

from __future__ import annotations

import sys
import time

from towline.cli.compat.gridengine.listing import (
    SUSPENDED,
    Entries,
    Entry,
    folded,
    table,
    task_text,
)
from towline.cli.compat.gridengine.outputs import see_to_it
from towline.cli.compat.gridengine.qhost import Host, hosts
from towline.cli.session import open_session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

VALUED = {
    "-j": ("JOBS", "everything about these: numbers, names or patterns"),
    "-u": ("USER", "only jobs of this user; '*' is everybody"),
    "-s": ("p|r|s|h|z|a", "only what waits (p), runs (r), is suspended (s), held (h), ended (z)"),
    "-q": ("QUEUE", "only what runs in this queue"),
    "-g": ("d", "one line for each task of an array"),
}
PLAIN = {
    "-f": "queue by queue",
    "-xml": "as XML",
    "-ext": "with further columns",
    "-r": "taken: the same columns",
}
_CHOICES: dict[str, Callable[[Entry], bool]] = {
    "p": lambda entry: entry.is_waiting,
    "r": lambda entry: not entry.is_waiting and entry.state != SUSPENDED,
    "s": lambda entry: entry.state == SUSPENDED,
    "z": lambda entry: entry.state == "z",
    "h": lambda entry: entry.is_kept_back,
    "a": lambda entry: True,
}


class Usage(Exception):
    """What was typed means nothing."""


def main(words: list[str]) -> int:
    try:
        options = _read(words)
    except Usage as error:
        sys.stderr.write(f'error: ERROR! invalid option argument "{error}"\n')
        return 1
    see_to_it()
    entries = Entries(open_session())
    if "-j" in options:
        return _details(entries, options["-j"], "-xml" in options)
    chosen = _chosen(entries, options)
    if not chosen and "-q" in options and not _is_queue(entries, options["-q"]):
        return 1
    lines = folded(chosen, each="d" in options.get("-g", ""))
    if "-xml" in options:
        sys.stdout.write(_xml(lines))
    elif "-f" in options:
        sys.stdout.write(by_queue(lines, hosts(entries.session)))
    else:
        sys.stdout.write(table(lines, "-ext" in options))
    return 0


def _read(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        name = rest.pop(0)
        if name in PLAIN:
            found[name] = "y"
        elif name in VALUED and (rest or name == "-j"):
            found[name] = rest.pop(0) if rest else "*"
        else:
            raise Usage(name)
    return found


def _chosen(entries: Entries, options: dict[str, str]) -> list[Entry]:
    users = [user for user in options.get("-u", "*").split(",") if user]
    states = [letter for letter in options.get("-s", "a") if letter in _CHOICES] or ["a"]
    queue = options.get("-q", "").partition("@")[0]
    every = entries.all + (entries.ended() if "z" in states else [])
    return [
        entry
        for entry in every
        if ("*" in users or entry.user in users)
        and any(_CHOICES[letter](entry) for letter in states)
        and (not queue or entry.cluster == queue)
    ]


def _is_queue(entries: Entries, name: str) -> bool:
    from towline.client.submission import this_folder
    from towline.client.transport import with_query

    target = with_query("/v1/clusters", cwd=this_folder())
    clusters = entries.session.call("GET", target)["clusters"]
    return name.partition("@")[0] in (cluster["name"] for cluster in clusters)


def _details(entries: Entries, names: str, xml: bool) -> int:
    """`-j`: what is known of jobs; those that do not exist are said so only when none does."""
    wanted = names.split(",")
    found = {entry.number: entry for name in wanted for entry in reversed(entries.called(name))}
    if xml:
        sys.stdout.write(_details_xml(wanted, list(found.values())))
        return 0
    if not found:
        sys.stderr.write("Following jobs do not exist: \n" + "\n".join(wanted) + "\n")
        return 1
    for number in sorted(found):
        sys.stdout.write("=" * 62 + "\n" + _detail(entries, found[number]))
    return 0


def _detail(entries: Entries, entry: Entry) -> str:
    job = entries.session.call("GET", f"/v1/jobs/{entry.job}")
    why = entries.session.call("GET", f"/v1/jobs/{entry.job}/why")["text"]
    tasks = [one.task for one in entries.all if one.number == entry.number and one.task]
    facts = {
        "job_number": str(entry.number),
        "submission_time": time.ctime(job["submitted"]),
        "owner": entry.user,
        "cwd": job["folder"],
        "job_name": entry.name,
        "job-array tasks": task_text(tasks) if tasks else "",
        "jid_predecessor_list": ",".join(
            str(one["batch"] or one["job"]) for one in job.get("waits_for") or []
        ),
        "execution_time": time.ctime(job["begin"]) if job.get("begin") else "",
        "scheduling info": why if entry.is_waiting and "E" not in entry.state else "",
    }
    text = "".join(f"{name + ':':<28}{value}\n" for name, value in facts.items() if value)
    if "E" in entry.state:
        text += f"error reason {entry.task or 1:>10}:      {why.partition(': ')[2] or why}\n"
    return text


def _details_xml(wanted: list[str], found: list[Entry]) -> str:
    from xml.sax.saxutils import escape

    if not found:
        names = "".join(f"<ST_name>{escape(name)}</ST_name>" for name in wanted)
        inner = f"<unknown_jobs >{names}</unknown_jobs>"
    else:
        inner = "".join(
            f"<element><JB_job_number>{entry.number}</JB_job_number>"
            f"<JB_job_name>{escape(entry.name)}</JB_job_name></element>"
            for entry in found
        )
        inner = f"<detailed_job_info><djob_info>{inner}</djob_info></detailed_job_info>"
    return f"<?xml version='1.0'?>\n{inner}\n"


def _xml(lines: list[tuple[Entry, str]]) -> str:
    running = "".join(_job_xml(*line) for line in lines if not line[0].is_waiting)
    pending = "".join(_job_xml(*line) for line in lines if line[0].is_waiting)
    return (
        "<?xml version='1.0'?>\n<job_info  xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\">\n"
        f"  <queue_info>\n{running}  </queue_info>\n  <job_info>\n{pending}  </job_info>\n"
        "</job_info>\n"
    )


def _job_xml(entry: Entry, tasks: str) -> str:
    from xml.sax.saxutils import escape

    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(entry.at))
    moment = "JB_submission_time" if entry.is_waiting else "JAT_start_time"
    tags = {
        "JB_job_number": str(entry.number),
        "JAT_prio": f"{entry.priority:.5f}",
        "JB_name": entry.name,
        "JB_owner": entry.user,
        "state": entry.state,
        moment: at,
        "queue_name": entry.queue,
        "slots": str(entry.slots),
    }
    if tasks:
        tags["tasks"] = tasks
    inner = "".join(f"      <{name}>{escape(text)}</{name}>\n" for name, text in tags.items())
    kind = "pending" if entry.is_waiting else "running"
    return f'    <job_list state="{kind}">\n{inner}    </job_list>\n'


def by_queue(lines: list[tuple[Entry, str]], found: list[Host]) -> str:
    """`-f`: the jobs of each queue below it, then those that wait."""
    rule = "-" * 81
    text = "queuename                      qtype resv/used/tot. load_avg arch          states\n"
    running = [line for line in lines if not line[0].is_waiting]
    known = {f"{queue}@{host.name}": host for host in found for queue in host.queues}
    for queue in dict.fromkeys([*known, *(entry.queue for entry, _ in running)]):
        mine = [line for line in running if line[0].queue == queue]
        used, host = sum(entry.slots for entry, _ in mine), known.get(queue)
        counts = f"0/{used}/{host.cpus if host else '-'}"
        facts = host.facts if host else {}
        load, arch = facts.get("load_avg", "-NA-"), facts.get("arch_string", "-NA-")
        text += f"{rule}\n{queue[:30]:<30} BIP   {counts:<14} {load:<8} {arch:<13} "
        text += f"{host.letters if host else ''}\n{_jobs_below(mine)}"
    waiting = [line for line in lines if line[0].is_waiting]
    if waiting:
        hashes, heading = "#" * 76, " - PENDING JOBS" * 5
        text += f"\n{hashes}\n{heading}\n{hashes}\n{_jobs_below(waiting)}"
    return text


def _jobs_below(lines: list[tuple[Entry, str]]) -> str:
    found = ""
    for entry, tasks in lines:
        at = time.strftime("%m/%d/%Y %H:%M:%S", time.localtime(entry.at))
        found += (
            f"{entry.number:7d} {entry.priority:7.5f} {entry.name[:10]:<10} "
            f"{entry.user[:12]:<12} {entry.state[:5]:<5} {at} {entry.slots:5d} {tasks or ' ' * 7}\n"
        )
    return found
