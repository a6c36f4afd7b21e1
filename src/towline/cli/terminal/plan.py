"""What `tow run --dry-run` shows."""

from __future__ import annotations

from towline.cli.terminal import printable
from towline.cli.terminal.wording import count, size
from towline.model.names import shown_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def plan_text(plan: dict[str, Any]) -> str:
    """Where a job would go, and what would be sent there."""
    command = plan.get("command") or []
    if not isinstance(command, str):
        import shlex

        command = shlex.join(command)
    lines = [
        f"command   {printable(command)}",
        f"cluster   {shown_cluster(str(plan.get('cluster')))}",
        f"request   {plan.get('request')}",
        *_placement(plan),
        f"sends     {count(plan.get('files', 0), 'file')}, {size(plan.get('bytes') or 0)}",
    ]
    lines += [
        f"          {size(count):>9}  {printable(path)}"
        for path, count in plan.get("largest") or []
    ]
    if plan.get("env"):
        lines.append(f"sets      {', '.join(plan['env'])}")
    return "\n".join(lines)


def _placement(plan: dict[str, Any]) -> list[str]:
    slots = plan.get("placement")
    why = printable(str(plan.get("why") or ""))
    if plan.get("queue"):
        import shlex

        return [f"sbatch    {printable(shlex.join(plan['queue'][1:]))}", f"starts    {why}"]
    if slots is None:
        return [f"starts    not at once; {why}" if why else "starts    not at once"]
    words = []
    for slot in slots:
        gpus = ", ".join(str(gpu) for gpu in slot.get("gpus") or [])
        words.append(f"{slot['machine']}{gpus and f' (GPU {gpus})'}")
    return [f"starts    at once on {', '.join(words)}"]
