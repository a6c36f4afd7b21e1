"""What a real Grid Engine 8.1.9 printed, printed again byte for byte."""

import time
from pathlib import Path
from xml.etree import ElementTree

from cli.stub import job
from towline.cli.compat.gridengine.as_xml import plain_list
from towline.cli.compat.gridengine.listing import Entry, table
from towline.cli.compat.gridengine.qhost import Host, memory
from towline.cli.compat.gridengine.qhost import table as host_table
from towline.cli.compat.gridengine.qstat import by_queue

RECORDINGS = Path(__file__).parent / "recordings"
RECORDED = (RECORDINGS / "qstat.txt").read_text()


def entries_of_the_recording() -> list[tuple[Entry, str]]:
    found = []
    for line in RECORDED.splitlines()[2:]:
        number, prior, name, user, state, day, hour, *rest = line.split()
        queue = rest.pop(0) if "@" in rest[0] else ""
        at = time.mktime(time.strptime(f"{day} {hour}", "%m/%d/%Y %H:%M:%S"))
        entry = Entry(job(int(number), title=name, owner=user, submitted=at, started=at))
        entry.state, entry.queue, entry.slots, entry.priority = state, queue, int(rest[0]), 0.0
        entry.priority = float(prior)
        found.append((entry, rest[1] if len(rest) > 1 else ""))
    return found


def test_the_table_is_byte_for_byte_that_of_grid_engine() -> None:
    assert table(entries_of_the_recording()) == RECORDED
    assert table([]) == ""


def recorded_xml() -> list[tuple[Entry, str]]:
    """The jobs of a recording, with their whole names."""
    found = []
    text = (RECORDINGS / "qstat-xml.txt").read_text()
    for one in ElementTree.fromstring(text).iter("job_list"):
        told = {part.tag: part.text or "" for part in one}
        stamp = told.get("JAT_start_time") or told["JB_submission_time"]
        at = time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%S"))
        number, name = int(told["JB_job_number"]), told["JB_name"]
        entry = Entry(job(number, title=name, owner=told["JB_owner"], submitted=at, started=at))
        entry.state, entry.queue, entry.slots = (
            told["state"],
            told["queue_name"],
            int(told["slots"]),
        )
        entry.priority = float(told["JAT_prio"])
        entry.environment = "smp" if entry.slots > 1 else ""
        found.append((entry, told.get("tasks", "")))
    return found


def test_the_list_as_xml_is_byte_for_byte_that_of_grid_engine() -> None:
    assert plain_list(recorded_xml()) == (RECORDINGS / "qstat-xml.txt").read_text()


def test_what_was_asked_for_is_told_as_grid_engine_tells_it() -> None:
    """Of resources only those are told that mean something here."""
    recorded = (RECORDINGS / "qstat-r.txt").read_text()
    asked = {111: ["h_vmem=2G,h_rt=3600,hostname=nowhere*"], 112: ["arch=foo"]}
    lines = recorded_xml()
    for entry, _ in lines:
        words = [word for text in asked.get(entry.number, []) for word in ("-l", text)]
        entry.view["queue"] = {"kind": "gridengine", "options": [words]}
        entry.awaited = [104] if entry.number == 106 else []
    recorded = recorded.replace("Soft Resources:   mem_free=1G", "Soft Resources:   ")
    recorded = recorded.replace("       Predecessor Jobs (request): arr\n", "")
    assert table(lines, requests=True) == recorded


def test_the_extended_table_has_its_columns_too() -> None:
    recorded = (RECORDINGS / "qstat-ext.txt").read_text()
    # What a job used so far is not known here.
    recorded = recorded.replace("0:00:00:00 0.00000 0.00002", f"{'NA':<10} {'NA':<7} {'NA':<7}")
    recorded = recorded.replace("0:00:00:00 0.00000 0.00004", f"{'NA':<10} {'NA':<7} {'NA':<7}")
    lines = []
    state, queue = recorded.index(" state ") + 1, recorded.index(" queue ") + 1
    for line in recorded.splitlines()[2:]:
        entry = Entry(job(int(line[:7]), title=line[24:35].strip(), owner="student"))
        entry.state, entry.queue = line[state : state + 5].strip(), line[queue : queue + 30].strip()
        entry.priority, entry.slots = float(line[8:15]), int(line[queue + 31 : queue + 36])
        lines.append((entry, line[queue + 37 :].strip()))
    assert table(lines, extended=True) == recorded


def recorded_hosts() -> list[Host]:
    found = []
    for name in ("ge1", "ge2"):
        host = Host({"name": name, "clusters": ["cpu"], "state": "online", "cpus": 4.0})
        host.facts = {
            "arch_string": "lx-amd64",
            **{"num_proc": "2", "m_socket": "1", "m_core": "2", "m_thread": "2"},
            **{"load_avg": "3.46", "mem_total": "23.5G", "mem_used": "2.7G"},
            **{"swap_total": "0.0", "swap_used": "0.0"},
        }
        host.busy = 0.0
        found.append(host)
    return found


def test_the_table_of_hosts_is_byte_for_byte_that_of_grid_engine() -> None:
    assert host_table(recorded_hosts()) == (RECORDINGS / "qhost.txt").read_text()
    assert host_table(recorded_hosts(), queues=True) == (RECORDINGS / "qhost-q.txt").read_text()
    assert [memory(size) for size in (24105.6, 965.9, 0, 2.5e6)] == [
        "23.5G",
        "965.9M",
        "0.0",
        "2.4T",
    ]


def test_the_list_of_queues_is_byte_for_byte_that_of_grid_engine() -> None:
    recorded = (RECORDINGS / "qstat-f.txt").read_text()
    lines = []
    queue = ""
    for line in recorded.splitlines():
        if line.startswith("cpu@"):
            queue = line.split()[0]
        elif line[:1] == " " and line[:7].strip().isdigit():
            number, prior, name, user, state, day, hour, slots, *tasks = line.split()
            at = time.mktime(time.strptime(f"{day} {hour}", "%m/%d/%Y %H:%M:%S"))
            entry = Entry(job(int(number), title=name, owner=user, submitted=at, started=at))
            entry.state, entry.slots, entry.priority = state, int(slots), float(prior)
            entry.queue = "" if entry.is_waiting else queue
            lines.append((entry, tasks[0] if tasks else ""))
    found = recorded_hosts()
    for host in found:
        host.facts["load_avg"] = "3.93"
    assert by_queue(lines, found) == recorded
