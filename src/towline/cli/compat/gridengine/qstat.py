"""`tow qstat`: what has not ended, in Grid Engine's columns."""

from __future__ import annotations

import fnmatch
import re
import sys
import time

from towline.cli.compat.gridengine.listing import (
    SUSPENDED,
    Entries,
    Entry,
    folded,
    table,
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
    "-g": ("c|d", "d: one line for each task of an array; c: one for each queue"),
}
PLAIN = {
    "-f": "queue by queue",
    "-xml": "as XML",
    "-ext": "with further columns",
    "-r": "with what each asked for",
}
_CHOICES: dict[str, Callable[[Entry], bool]] = {
    "p": lambda entry: entry.is_waiting,
    "r": lambda entry: not entry.is_waiting and entry.state != SUSPENDED,
    "s": lambda entry: entry.state == SUSPENDED,
    "z": lambda entry: entry.state == "z",
    "h": lambda entry: entry.is_kept_back,
    "a": lambda entry: True,
}


_HELP = """\
usage: qstat [options]
        [-ext]                            view additional attributes
        [-f]                              full output
        [-g c]                            display cluster queue summary
        [-g d]                            display all job-array tasks (do not group)
        [-help]                           print this help
        [-j [job_identifier_list]]        show scheduler job information
        [-q wc_queue_list]                print information on given queue
        [-r]                              show requested resources of job(s)
        [-s {p|r|s|z|hu|ho|hs|hd|hj|ha|h|a}] show pending, running, suspended, zombie jobs,
                                          jobs with a hold, or any combination only
        [-u user_list]                    view jobs of this user list
        [-xml]                            display the information in XML format
"""


class Usage(Exception):
    """What was typed means nothing."""


def main(words: list[str]) -> int:
    try:
        options = _read(words)
    except Usage as error:
        sys.stderr.write(f"{error}\n")
        return 1
    see_to_it()
    entries = Entries(open_session())
    if "-j" in options:
        from towline.cli.compat.gridengine.details import details

        return details(entries, options["-j"], "-xml" in options)
    _name_queues(entries)
    chosen = _chosen(entries, options)
    if not chosen and "-q" in options and not _is_queue(entries, options["-q"]):
        return 1
    lines = folded(chosen, each="d" in options.get("-g", ""))
    sys.stdout.write(_shown(entries, lines, options))
    return 0


def _shown(entries: Entries, lines: list[tuple[Entry, str]], options: dict[str, str]) -> str:
    if "c" in options.get("-g", ""):
        return by_cluster(lines, hosts(entries.session))
    if "-xml" in options:
        from towline.cli.compat.gridengine.as_xml import full_list, plain_list

        if "-f" in options:
            return full_list(lines, hosts(entries.session))
        return plain_list(lines, "-r" in options)
    if "-f" in options:
        return by_queue(lines, hosts(entries.session))
    return table(lines, "-ext" in options, "-r" in options)


def _read(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        name = rest.pop(0)
        if name in PLAIN:
            found[name] = "y"
        elif name == "-j":
            found[name] = rest.pop(0) if rest and rest[0][:1] != "-" else ""
        elif name not in VALUED:
            raise Usage(f'{_HELP}\ninvalid option argument "{name}"')
        elif not rest:
            raise Usage(f"{name} option must have argument")
        else:
            found[name] = _checked(name, rest.pop(0))
    return found


def _checked(name: str, value: str) -> str:
    if name == "-g" and (wrong := next((sign for sign in value if sign not in "cd"), "")):
        if wrong == "t":
            raise Usage("-g t: parallel tasks are not told apart here")
        raise Usage(f"wrong character '{wrong}' for -g option")
    if name == "-s" and not re.fullmatch("([prsza]|h[uoshdja]*)+", value):
        raise Usage(f"{_HELP}\nERROR! wrong argument to -s option")
    return value


def _chosen(entries: Entries, options: dict[str, str]) -> list[Entry]:
    users = [user for user in options.get("-u", "*").split(",") if user]
    states = re.findall("h[uoshdja]*|[prsza]", options.get("-s", "a"))
    queue, _, host = options.get("-q", "").partition("@")
    every = entries.all + (entries.ended() if "z" in states else [])
    return [
        entry
        for entry in every
        if any(fnmatch.fnmatchcase(entry.user, user) for user in users)
        and any(_CHOICES[state[0]](entry) for state in states)
        and (not queue or queue in (entry.cluster, entry.among))
        and (not host or entry.is_waiting or fnmatch.fnmatchcase(entry.queue, f"*@{host}"))
    ]


def _name_queues(entries: Entries) -> None:
    """A queue tells in which of its queues a job is a moment after that began: of a host that is in
    one only, it is known."""
    new = [one for one in entries.all if one.queue and one.view.get("queue")]
    new = [one for one in new if not one.view["queue"].get("partition")]
    found = hosts(entries.session) if new else []
    only = {host.name: host.queues[0] for host in found if len(host.queues) == 1}
    for entry in new:
        host = entry.queue.partition("@")[2]
        if host in only:
            entry.among, entry.queue = only[host], f"{only[host]}@{host}"


def _is_queue(entries: Entries, name: str) -> bool:
    from towline.client.submission import this_folder
    from towline.client.transport import with_query

    target = with_query("/v1/clusters", cwd=this_folder())
    clusters = entries.session.call("GET", target)["clusters"]
    queue = name.partition("@")[0]
    return queue in (cluster["name"] for cluster in clusters) or any(
        queue in host.queues for host in hosts(entries.session)
    )


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


def by_cluster(lines: list[tuple[Entry, str]], found: list[Host]) -> str:
    """`-g c`: what is used of each queue."""
    head = "CLUSTER QUEUE                   CQLOAD   USED    RES  AVAIL  TOTAL aoACDS  cdsuE  \n"
    text = head + "-" * 80 + "\n"
    for queue in dict.fromkeys(queue for host in found for queue in host.queues):
        mine = [host for host in found if queue in host.queues]
        well = [host for host in mine if not host.letters]
        used = sum(entry.slots for entry, _ in lines if entry.queue.partition("@")[0] == queue)
        total, bad = sum(host.cpus for host in mine), sum(h.cpus for h in mine if h.letters)
        busy, cpus = sum(host.busy for host in well), sum(host.cpus for host in well)
        load = f"{busy / cpus:.2f}" if cpus else "-NA-"
        free = max(0, cpus - used)
        counts = "".join(f"{count:6d} " for count in (used, 0, free, total, 0, bad))
        text += f"{queue[:30]:<30} {load:>7} {counts}\n"
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
