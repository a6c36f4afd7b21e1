"""`qstat -xml`: the same lists for programs."""

from __future__ import annotations

import time
from xml.sax.saxutils import escape

from towline.cli.compat.gridengine.listing import hard_resources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from towline.cli.compat.gridengine.listing import Entry
    from towline.cli.compat.gridengine.qhost import Host

_SCHEMA = "http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd"
_HEAD = f"<?xml version='1.0'?>\n<job_info  xmlns:xsd=\"{_SCHEMA}\">\n"


def plain_list(lines: list[tuple[Entry, str]], requests: bool = False) -> str:
    """What runs, then what waits."""
    running = "".join(_job(*line, requests) for line in lines if not line[0].is_waiting)
    pending = "".join(_job(*line, requests) for line in lines if line[0].is_waiting)
    return (
        f"{_HEAD}  <queue_info>\n{running}  </queue_info>\n"
        f"  <job_info>\n{pending}  </job_info>\n</job_info>\n"
    )


def full_list(lines: list[tuple[Entry, str]], found: list[Host]) -> str:
    """`-f`: what runs is below its queue."""
    text = f"{_HEAD}  <queue_info>\n"
    for host in found:
        for queue in host.queues:
            mine = [line for line in lines if line[0].queue == f"{queue}@{host.name}"]
            tags = {
                "name": f"{queue}@{host.name}",
                "qtype": "BIP",
                "slots_used": str(sum(entry.slots for entry, _ in mine)),
                "slots_resv": "0",
                "slots_total": str(host.cpus),
                "load_avg": host.facts.get("load_avg", ""),
                "arch": host.facts.get("arch_string", ""),
                "state": host.letters,
            }
            jobs = "".join(_job(*line, indent=6) for line in mine)
            known = {name: value for name, value in tags.items() if value}
            text += f"    <Queue-List>\n{_tags(known, 6)}{jobs}    </Queue-List>\n"
    pending = "".join(_job(*line, indent=4, place=False) for line in lines if line[0].is_waiting)
    return f"{text}  </queue_info>\n  <job_info>\n{pending}  </job_info>\n</job_info>\n"


def unknown_jobs(names: Iterable[str]) -> str:
    inner = "".join(f"    <ST_name>{escape(name)}</ST_name>\n" for name in names)
    return f"<?xml version='1.0'?>\n<unknown_jobs >\n{inner}</unknown_jobs>\n"


def known_jobs(found: Iterable[Entry]) -> str:
    """`-j`: who they are."""
    inner = ""
    for entry in found:
        tags = {
            "JB_job_number": str(entry.number),
            "JB_job_name": entry.name,
            "JB_owner": entry.user,
            "JB_submission_time": str(int(float(entry.view["submitted"]))),
            "JB_execution_time": str(int(float(entry.view.get("begin") or 0))),
            "JB_cwd": str(entry.view.get("folder") or ""),
        }
        inner += f"    <element>\n{_tags(tags, 6)}    </element>\n"
    return (
        f"<?xml version='1.0'?>\n<detailed_job_info  xmlns:xsd=\"{_SCHEMA}\">\n"
        f"  <djob_info>\n{inner}  </djob_info>\n</detailed_job_info>\n"
    )


def _job(
    entry: Entry, tasks: str, requests: bool = False, indent: int = 4, place: bool = True
) -> str:
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(entry.at))
    tags = {
        "JB_job_number": str(entry.number),
        "JAT_prio": f"{entry.priority:.5f}",
        "JB_name": entry.name,
        "JB_owner": entry.user,
        "state": entry.state,
        "JB_submission_time" if entry.is_waiting else "JAT_start_time": at,
    }
    if place and indent == 4:
        tags["queue_name"] = entry.queue
    tags["slots"] = str(entry.slots)
    if tasks:
        tags["tasks"] = tasks
    kind, blank = "pending" if entry.is_waiting else "running", " " * indent
    inner = _tags(tags, indent + 2) + (_requests(entry) if requests else "")
    return f'{blank}<job_list state="{kind}">\n{inner}{blank}</job_list>\n'


def _requests(entry: Entry) -> str:
    """What `-r` adds."""
    text = _tags({"full_job_name": entry.name}, 6)
    for kind in ("requested_pe", *(["granted_pe"] if entry.queue else [])):
        if name := escape(entry.environment):
            text += f'      <{kind} name="{name}">{entry.slots}</{kind}>\n'
    for one in hard_resources(entry, note=""):
        name, _, value = one.partition("=")
        text += f'      <hard_request name="{escape(name)}">{escape(value)}</hard_request>\n'
    return text + _tags({"binding": "NONE"}, 6)


def _tags(tags: dict[str, str], indent: int) -> str:
    blank = " " * indent
    return "".join(f"{blank}<{name}>{escape(text)}</{name}>\n" for name, text in tags.items())
