"""Machines and what is free on them, as a table."""

from __future__ import annotations

from towline.cli.terminal.table import LATE, Column, show_table
from towline.model.names import AD_HOC, shown_cluster
from towline.model.units import format_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.terminal.table import Cell, Rows

COLUMNS = [
    Column("MACHINE"),
    Column("STATE"),
    Column("CLUSTERS", drop=1),
    Column("CPUS FREE", drop=LATE + 1),
    Column("MEMORY FREE", drop=LATE),
    Column("JOBS", drop=2),
    Column("GPUS", least=25),
]
STATE_COLOURS = {"online": "green", "connecting": "yellow", "offline": "red"}
BAR_WIDTH = 8
#: More nodes than this are shown as one row for all that are alike.
MANY = 30
#: So much of their names is shown.
NAMES_WIDTH = 40


def show_machines(machines: list[dict[str, Any]]) -> None:
    """One row per machine, and one more for each further GPU."""
    nodes = [machine for machine in machines if machine.get("node")]
    if len(nodes) > MANY:
        machines = [one for one in machines if not one.get("node")] + grouped(nodes)
    show_table(COLUMNS, [row for machine in machines for row in _rows(machine)])


def grouped(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Nodes that have the same and are in the same state, as one with what all of them have."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for node in nodes:
        has = [[gpu["model"], gpu["count"]] for gpu in node["gpus"]]
        alike = [node[key] for key in ("clusters", "state", "reason", "closed", "cpus", "mem_mb")]
        groups.setdefault(repr((alike, has)), []).append(node)
    return [_together(group) for group in groups.values()]


def _together(group: list[dict[str, Any]]) -> dict[str, Any]:
    sums = ("cpus", "cpus_free", "mem_mb", "mem_free_mb")
    gpus = [
        {"model": kinds[0]["model"], **{k: sum(g[k] for g in kinds) for k in ("count", "free")}}
        for kinds in zip(*(node["gpus"] for node in group), strict=True)
    ]
    names = folded([node["name"] for node in group])
    names = names if len(names) <= NAMES_WIDTH else names[: NAMES_WIDTH - 1] + "…"
    return {
        **group[0],
        **{key: sum(node[key] for node in group) for key in sums},
        "name": f"{len(group)}: {names}" if len(group) > 1 else names,
        "jobs": sorted({job for node in group for job in node["jobs"]}),
        "gpus": gpus,
    }


def folded(names: list[str]) -> str:
    """gpu001, gpu002, gpu007, x -> `gpu[001-002,007], x`, as Slurm writes it."""
    from towline.probes.slurm import spans

    numbers: dict[tuple[str, int], list[int]] = {}
    for name in names:
        stem = name.rstrip("0123456789")
        digits = name[len(stem) :]
        numbers.setdefault((stem, len(digits)), []).extend([int(digits)] if digits else [])
    said = [(stem, spans(some, width), len(some)) for (stem, width), some in numbers.items()]
    return ", ".join(f"{stem}[{span}]" if many > 1 else stem + span for stem, span, many in said)


def _rows(machine: dict[str, Any]) -> Rows:
    name = ", also ".join([str(machine["name"]), *map(str, machine.get("also") or [])])
    state = str(machine["state"])
    coloured = (state, STATE_COLOURS.get(state, ""))
    clusters = ", ".join(_clusters(machine))
    if state != "online":
        return [[name, coloured, clusters, "", "", "", str(machine.get("reason") or "")]]
    gpus: list[Cell] = [_gpu(gpu) for gpu in machine.get("gpus") or []] or ["none"]
    if machine.get("closed"):
        coloured = ("closed", "yellow")
        gpus.append((str(machine["closed"]), "yellow"))
    cpus = f"{_number(machine.get('cpus_free'))} of {_number(machine.get('cpus'))}"
    jobs = ", ".join(map(str, machine.get("jobs") or []))
    first: list[Cell] = [name, coloured, clusters, cpus, _memory(machine), jobs, gpus[0]]
    return [first, *(["", "", "", "", "", "", gpu] for gpu in gpus[1:])]


def _clusters(machine: dict[str, Any]) -> list[str]:
    """Those that people know of."""
    names = map(str, machine.get("clusters") or [])
    return [shown_cluster(name) for name in names if not name.startswith(AD_HOC)]


def _gpu(gpu: dict[str, Any]) -> Cell:
    """`0 GTX 1070 ██░░░░░░ 2 of 8 GB free, 35 %, job 12`; of a node `a100 ████░░░░ 2 of 4 free`."""
    if "count" in gpu:
        bar = _bar(gpu["free"], gpu["count"])
        return f"{gpu['model']} {bar} {gpu['free']} of {gpu['count']} free"
    total, free = gpu.get("mem_mb") or 0, gpu.get("free_mb") or 0
    bar = _bar(free, total)
    words = [f"{format_memory(free)} of {format_memory(total)} free"]
    if gpu.get("util") is not None:
        words.append(f"{_percent(gpu['util'])} busy")
    if gpu.get("used_by"):
        words.append(str(gpu["used_by"]))
    text = f"{gpu['index']} {_short_model(str(gpu['model']))} {bar} {', '.join(words)}"
    return text, "yellow" if gpu.get("used_by") else ""


def _bar(free: float, total: float) -> str:
    used = (total - free) / total if total else 0.0
    filled = max(0, min(BAR_WIDTH, round(used * BAR_WIDTH)))
    return "█" * filled + "░" * (BAR_WIDTH - filled)


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share <= 1 else f"{share:.0f} %"


def _short_model(model: str) -> str:
    return model.removeprefix("NVIDIA ").removeprefix("GeForce ")


def _memory(machine: dict[str, Any]) -> str:
    free, total = machine.get("mem_free_mb") or 0, machine.get("mem_mb") or 0
    return f"{format_memory(free)} of {format_memory(total)}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}".removesuffix(".0")
