"""What a Grid Engine has: its hosts, parallel environments and complexes, as printed. Pure."""

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from towline.probes.nodes import QueueNode

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

#: One question for all that decides how jobs are asked for; a part that fails is left out.
_SCRIPT = """\
echo '[configuration]'; qconf -sconf
echo '[scheduler]'; qconf -ssconf
echo '[complexes]'; qconf -sc
for pe in `qconf -spl 2>/dev/null`; do echo '[environment]'; qconf -sp "$pe"; done
for queue in `qconf -sql 2>/dev/null`; do echo '[queue]'; qconf -sq "$queue"; done
"""
_UNITS = {"": 1 / 2**20, "K": 2**-10, "M": 1, "G": 2**10, "T": 2**20, "P": 2**30}
#: Names of complexes by which sites count GPUs and memory, likeliest first.
GPU_NAMES = ("gpu", "gpus", "ngpus", "gpu_card", "cuda", "num_gpu")
_STATES = {
    "u": "Grid Engine does not hear of it",
    "E": "its queue is in error state: only an admin can clear it (qmod -cq)",
    "d": "its queue is disabled",
    "D": "its queue is disabled by its calendar",
    "a": "it is too busy",
    "s": "its queue is suspended",
    "S": "its queue is suspended by another",
    "C": "its queue is suspended by its calendar",
    "c": "its configuration is ambiguous",
    "o": "its queue is going",
}


class Environment(Struct, frozen=True):
    """A parallel environment."""

    name: str
    rule: str
    slots: int
    queues: tuple[str, ...] = ()
    #: Programs can be started on all of its hosts, and end with the job.
    reaches_hosts: bool = True

    @property
    def is_one_host(self) -> bool:
        return self.rule == "$pe_slots"

    def is_for(self, cpus: int, count: int) -> bool:
        """Whether each of so many processes gets its CPUs on one host, whichever that is."""
        if self.slots < cpus * count or not self.queues:
            return False
        if self.is_one_host:
            return True
        if self.rule.isdecimal() and int(self.rule) > 0:
            by_host = int(self.rule)
            whole = by_host % cpus == 0 and cpus * count % by_host == 0
            return whole and (self.reaches_hosts or by_host == cpus * count)
        spread = self.rule in ("$round_robin", "$fill_up")
        return spread and cpus == 1 and count > 1 and self.reaches_hosts


class Complex(Struct, frozen=True):
    name: str
    kind: str
    relation: str
    requestable: str
    consumable: str

    @property
    def can_be_asked(self) -> bool:
        return self.requestable in ("YES", "FORCED", "Y", "F")

    @property
    def is_per_slot(self) -> bool:
        return self.consumable in ("YES", "Y", "NO", "N")

    @property
    def is_counted(self) -> bool:
        return self.consumable not in ("NO", "N")


class GridSite(Struct, frozen=True):
    """All that decides how jobs are asked for."""

    environments: tuple[Environment, ...] = ()
    complexes: dict[str, Complex] = {}
    queues: tuple[str, ...] = ()
    #: Tasks that an array may have; 0 where it does not say.
    longest: int = 0
    tells_why: bool = False


def site_words() -> list[str]:
    return ["sh", "-c", _SCRIPT]


def read_site(text: str) -> GridSite | None:
    """None where it did not answer."""
    parts = [
        (head, _settings(body)) if head != "complexes" else (head, {"": body})
        for head, body in re.findall(r"^\[(\w+)\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
    ]
    told = {head: settings for head, settings in parts if settings}
    if "configuration" not in told:
        return None
    queues = {one["qname"]: one for head, one in parts if head == "queue" and "qname" in one}
    complexes = _complexes(told.get("complexes", {}).get("", ""))
    environments = (one for head, one in parts if head == "environment" and "pe_name" in one)
    return GridSite(
        tuple(_environment(one, queues) for one in environments),
        complexes,
        tuple(queues),
        _number(told["configuration"].get("max_aj_tasks", "")),
        told.get("scheduler", {}).get("schedd_job_info", "") == "true",
    )


def _environment(told: dict[str, str], queues: dict[str, dict[str, str]]) -> Environment:
    name = told["pe_name"]
    inside = (q for q, of in queues.items() if name in re.split(r"[\s,]+", of.get("pe_list", "")))
    rule = told.get("allocation_rule", "")
    reaches = told.get("control_slaves", "").upper() == "TRUE"
    return Environment(name, rule, _number(told.get("slots", "")), tuple(inside), reaches)


def _settings(text: str) -> dict[str, str]:
    """Lines continue behind a backslash."""
    return dict(re.findall(r"^(\w+)[ \t]+(.*?)[ \t]*$", text.replace("\\\n", " "), re.MULTILINE))


def _complexes(text: str) -> dict[str, Complex]:
    rows = (line.split() for line in text.splitlines() if line and not line.startswith(("#", "-")))
    return {
        row[0]: Complex(row[0], row[2], row[3], row[4].upper(), row[5].upper())
        for row in rows
        if len(row) >= 6
    }


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


# --- hosts ---------------------------------------------------------------------------------------


#: `qhost` says of GPUs what is left; how many there are is in the configuration of each host.
_HOSTS = r"""
qhost -F -q -xml || exit
hosts=; for host in `qconf -sel 2>/dev/null`; do hosts="$hosts -se $host"; done
[ -z "$hosts" ] || qconf $hosts 2>/dev/null |
  awk '/^hostname/ { print } /^complex_values/ { on = 1 } on { print; if (!/\\$/) on = 0 }'
exit 0
"""


def node_words() -> list[str]:
    return ["sh", "-c", _HOSTS]


def read_nodes(text: str) -> list[QueueNode]:
    """The hosts that have a queue, with its slots as their CPUs; ValueError where it is no list."""
    from xml.etree import ElementTree  # not quick to load, and only some have a Grid Engine

    listed, end, configured = text.partition("</qhost>")
    try:
        root = ElementTree.fromstring(listed + end)
    except ElementTree.ParseError as problem:
        raise ValueError(f"qhost's list cannot be read: {problem}") from None
    parts = [_settings(part) for part in re.split(r"^(?=hostname\b)", configured, flags=re.M)]
    counts = {
        part["hostname"]: part.get("complex_values", "") for part in parts if "hostname" in part
    }
    return [node for one in root.iter("host") if (node := _node(one, counts)) is not None]


def _node(host: "Element", counts: dict[str, str]) -> QueueNode | None:
    values = {one.get("name", ""): (one.text or "").strip() for one in host.iter("hostvalue")}
    left = {one.get("name", ""): (one.text or "").strip() for one in host.iter("resourcevalue")}
    queues = [_queue(one) for one in host.iter("queue")]
    if not queues:
        return None
    total_mb, used_mb = memory_mb(values.get("mem_total", "")), memory_mb(values.get("mem_used"))
    states = [state for _, state, _, _ in queues]
    name = host.get("name", "")
    kind = next((n for n in GPU_NAMES if _is_count(left.get(n, ""))), "")
    free = int(float(left[kind])) if kind else 0
    told = re.search(rf"\b{kind}=(\d+)", counts.get(name, "")) if kind else None
    gpus = max(free, int(told[1]) if told else 0)
    bad = _worst(states)
    return QueueNode(
        name,
        max(slots for _, _, slots, _ in queues),
        total_mb,
        {"": gpus} if gpus else {},
        max(0, max(slots - used for _, _, slots, used in queues)),
        max(0, total_mb - used_mb),
        {"": free} if gpus else {},
        closed="" if "u" in bad else _reason(bad),
        down=_reason("u") if "u" in bad else "",
        partitions=tuple(queue for queue, _, _, _ in queues),
        facts={
            **{name: value for name, value in values.items() if value not in ("", "-")},
            **({"states": bad} if bad else {}),
        },
    )


def _queue(one: "Element") -> tuple[str, str, int, int]:
    told = {value.get("name", ""): (value.text or "").strip() for value in one.iter("queuevalue")}
    used, slots = _number(told.get("slots_used", "")), _number(told.get("slots", ""))
    return one.get("name", ""), told.get("state_string", ""), slots, used


def _worst(states: list[str]) -> str:
    """A host is closed when each of its queues is; by what is wrong with the first."""
    return states[0] if all(set(state) & set(_STATES) for state in states) else ""


def _reason(state: str) -> str:
    return next((text for letter, text in _STATES.items() if letter in state), "")


def _is_count(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", text) is not None


def memory_mb(text: str | None) -> int:
    """`23.5G` -> MB; 0 for what is not heard of."""
    found = re.fullmatch(r"([\d.]+)([KMGTP]?)", (text or "").strip().upper())
    return int(float(found[1]) * _UNITS[found[2]]) if found else 0
