"""Machines and what is free on them, as a table."""

from __future__ import annotations

from towline.cli.table import show_table
from towline.model.units import format_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from towline.cli.table import Cell, Rows

COLUMNS = ["MACHINE", "STATE", "CLUSTERS", "CPUS FREE", "MEMORY FREE", "JOBS", "GPUS"]
STATE_COLOURS = {"online": "green", "connecting": "yellow", "offline": "red"}
BAR_WIDTH = 8


def show_machines(machines: list[dict[str, Any]]) -> None:
    """One row per machine, and one more for each further GPU."""
    show_table(COLUMNS, [row for machine in machines for row in _rows(machine)])


def _rows(machine: dict[str, Any]) -> Rows:
    name = str(machine["name"])
    state = str(machine["state"])
    coloured = (state, STATE_COLOURS.get(state, ""))
    clusters = ", ".join(machine.get("clusters") or [])
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


def _gpu(gpu: dict[str, Any]) -> Cell:
    """`0 GTX 1070 ██░░░░░░ 2 of 8 GB free, 35 %, job 12`."""
    total, free = gpu.get("mem_mb") or 0, gpu.get("free_mb") or 0
    used = (total - free) / total if total else 0.0
    filled = max(0, min(BAR_WIDTH, round(used * BAR_WIDTH)))
    bar = "█" * filled + "░" * (BAR_WIDTH - filled)
    words = [f"{format_memory(free)} of {format_memory(total)} free"]
    if gpu.get("util") is not None:
        words.append(f"{_percent(gpu['util'])} busy")
    if gpu.get("used_by"):
        words.append(str(gpu["used_by"]))
    text = f"{gpu['index']} {_short_model(str(gpu['model']))} {bar} {', '.join(words)}"
    return text, "yellow" if gpu.get("used_by") else ""


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share <= 1 else f"{share:.0f} %"


def _short_model(model: str) -> str:
    return model.removeprefix("NVIDIA ").removeprefix("GeForce ")


def _memory(machine: dict[str, Any]) -> str:
    free, total = machine.get("mem_free_mb") or 0, machine.get("mem_mb") or 0
    return f"{format_memory(free)} of {format_memory(total)}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}".removesuffix(".0")
